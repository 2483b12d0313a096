/** Routes of deploy keys, git tokens and git hosts. */
import type { GitHost, GitToken } from '@berth/wire/git';
import { DomainError } from '../../domain/platform/errors.ts';
import { hostName, type StoredKey, trust, trustedKeys } from '../../domain/git/git-hosts.ts';
import type { GitTokenRecord } from '../../domain/git/git-stores.ts';
import { checkApiUrl, tokenHost } from '../../domain/git/git-token.ts';
import { newSshKey } from '../ssh-keys.ts';
import type { Agents } from '../agents.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { checkIfMatch } from '../etag.ts';
import { keysByHost } from '../git-access.ts';
import { projectEtag } from '../resource-etags.ts';
import { time } from '../views.ts';

export function gitRoutes(
  route: Define,
  { stores, vault, changes, now, agents }: ApiDeps & { agents: Agents },
): void {
  route('createDeployKey', async ({ params }) => {
    const { name } = await stores.projects.get(params.id);
    const { privateKey, publicKey, fingerprint } = newSshKey(`berth:${name}`);
    const sealed = await vault.seal(params.id, 'deploy-key', privateKey);
    const record = {
      project_id: params.id,
      public_key: publicKey,
      fingerprint,
      sealed,
      created_at: now(),
    };
    await stores.deployKeys.put(record);
    changes.notify('events');
    return keyView(record);
  });

  route('getDeployKey', async ({ params }) => {
    const key = await stores.deployKeys.get(params.id);
    if (key === null) throw new DomainError('not_found', 'the project has no deploy key');
    return keyView(key);
  });

  route('deleteDeployKey', async ({ params }) => {
    await stores.deployKeys.remove(params.id, now());
    changes.notify('events');
  });

  route('putGitToken', async ({ params, body, user, ifMatch }) => {
    const { username = null, token, api_url = null } = body;
    if (api_url !== null) checkApiUrl(api_url);
    // Before the token is sealed, so that a refused request creates no key.
    const host = tokenHost((await stores.projects.get(params.id)).git_url);
    const sealed = await vault.seal(params.id, 'git-token', token);
    const record = {
      project_id: params.id,
      host,
      username,
      sealed,
      api_url,
      set_by: user.email,
      set_at: now(),
    };
    const stored = await stores.gitTokens.put(record, (present) => {
      checkIfMatch(ifMatch, projectEtag(present, user.role));
      if (tokenHost(present.git_url) === host) return;
      // Somebody may have changed the address to get the token.
      const why =
        `git_url is ${present.git_url} now, and the token was for ${host}; read the project and ` +
        'set the token again';
      throw new DomainError('wrong_state', why);
    });
    changes.notify('events');
    return tokenView(stored);
  });

  route('getGitToken', async ({ params }) => {
    const token = await stores.gitTokens.get(params.id);
    if (token === null) throw new DomainError('not_found', 'the project has no git token');
    return tokenView(token);
  });

  route('deleteGitToken', async ({ params }) => {
    await stores.gitTokens.remove(params.id, now());
    changes.notify('events');
  });

  route('listGitHosts', async () => {
    const items = [...keysByHost(await stores.gitHosts.all())].map(([host, keys]) =>
      hostView(host, keys),
    );
    return { items: items.sort((a, b) => (a.host < b.host ? -1 : 1)), next_cursor: null };
  });

  route('getGitHost', async ({ params }) => {
    const host = hostName(params.host);
    const view = hostView(host, await stores.gitHosts.of(host));
    if (view.keys.length === 0 && view.presented.length === 0)
      throw new DomainError('not_found', `no ssh host keys of ${host} are known`);
    return view;
  });

  route('putGitHost', async ({ params, body, user, request }) => {
    const host = hostName(params.host);
    request.audited = { target: host };
    const { fingerprint, key_type = null } = body;
    const decide = (stored: readonly StoredKey[]) => {
      const change = trust(host, stored, { fingerprint, key_type }, user.email, now());
      const event =
        change.put.length === 0
          ? null
          : `host key ${fingerprint} of ${host} is trusted now${replacing(change.remove)}`;
      return { ...change, event };
    };
    const keys = await stores.gitHosts.change(host, decide, now());
    changes.notify('events');
    return hostView(host, keys);
  });

  route('deleteGitHost', async ({ params, request }) => {
    const host = hostName(params.host);
    request.audited = { target: host };
    await stores.gitHosts.remove(host, now());
    changes.notify('events');
  });

  route('agentKnownHosts', async ({ query, body, request }) => {
    await agents.checkNode(request, query.node_id);
    const imported = await stores.gitHosts.import(query.node_id, body.keys, now());
    if (imported > 0) changes.notify('events');
    return { imported };
  });
}

const replacing = (fingerprints: readonly string[]): string =>
  fingerprints.length === 0 ? '' : `; it replaces ${fingerprints.join(', ')}`;

const keyView = ({
  public_key,
  fingerprint,
  created_at,
}: {
  public_key: string;
  fingerprint: string;
  created_at: number;
}) => ({
  public_key,
  fingerprint,
  created_at: time(created_at),
});

const tokenView = ({ host, username, api_url, set_by, set_at }: GitTokenRecord): GitToken => ({
  host,
  username,
  api_url,
  set_by,
  set_at: time(set_at),
});

const hostView = (host: string, stored: readonly StoredKey[]): GitHost => ({
  host,
  keys: trustedKeys(host, stored).map((key) => ({
    ...key,
    added_at: key.added_at === null ? null : time(key.added_at),
  })),
  presented: stored
    .filter((key) => key.state === 'presented')
    .map(({ fingerprint, key_type, at }) => ({ fingerprint, key_type, seen_at: time(at) })),
});
