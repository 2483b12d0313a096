/** Routes of deploy keys, git tokens and git hosts. */
import type { GitHost, GitToken } from '@berth/wire/git';
import { DomainError } from '../../domain/platform/errors.ts';
import { hostName, type StoredKey, trust, trustedKeys } from '../../domain/git/git-hosts.ts';
import type {
  GitTokenRecord,
  DeployKeyStore,
  GitTokenStore,
  GitHostStore,
} from '../../domain/git/git-stores.ts';
import { checkApiUrl, tokenHost } from '../../domain/git/git-token.ts';
import { newSshKey } from '../ssh-keys.ts';
import type { Agents } from '../agents.ts';
import type { Define, Call } from '../define.ts';
import { checkIfMatch } from '../etag.ts';
import { keysByHost } from '../git-access.ts';
import { projectEtag } from '../resource-etags.ts';
import { time } from '../views.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { Vault } from '../../domain/secrets/vault.ts';
import type { Changes } from '../../domain/platform/changes.ts';

export type Deps = {
  projects: Pick<ProjectStore, 'get'>;
  deployKeys: Pick<DeployKeyStore, 'get' | 'put' | 'remove'>;
  gitTokens: Pick<GitTokenStore, 'get' | 'put' | 'remove'>;
  gitHosts: Pick<GitHostStore, 'all' | 'change' | 'import' | 'of' | 'remove'>;
  vault: Pick<Vault, 'seal'>;
  changes: Pick<Changes, 'notify'>;
  agents: Pick<Agents, 'checkNode'>;
  now: () => number;
};

export function gitRoutes(route: Define, deps: Deps): void {
  route('createDeployKey', (call) => createDeployKey(deps, call));
  route('getDeployKey', (call) => getDeployKey(deps, call));
  route('deleteDeployKey', (call) => deleteDeployKey(deps, call));
  route('putGitToken', (call) => putGitToken(deps, call));
  route('getGitToken', (call) => getGitToken(deps, call));
  route('deleteGitToken', (call) => deleteGitToken(deps, call));
  route('listGitHosts', () => listGitHosts(deps));
  route('getGitHost', (call) => getGitHost(deps, call));
  route('putGitHost', (call) => putGitHost(deps, call));
  route('deleteGitHost', (call) => deleteGitHost(deps, call));
  route('agentKnownHosts', (call) => agentKnownHosts(deps, call));
}

async function createDeployKey(deps: Deps, { params }: Call<'createDeployKey'>) {
  const { name } = await deps.projects.get(params.id);
  const { privateKey, publicKey, fingerprint } = newSshKey(`berth:${name}`);
  const sealed = await deps.vault.seal(params.id, 'deploy-key', privateKey);
  const record = {
    project_id: params.id,
    public_key: publicKey,
    fingerprint,
    sealed,
    created_at: deps.now(),
  };
  await deps.deployKeys.put(record);
  deps.changes.notify('events');
  return keyView(record);
}

async function getDeployKey(deps: Deps, { params }: Call<'getDeployKey'>) {
  const key = await deps.deployKeys.get(params.id);
  if (key === null) throw new DomainError('not_found', 'the project has no deploy key');
  return keyView(key);
}

async function deleteDeployKey(deps: Deps, { params }: Call<'deleteDeployKey'>) {
  await deps.deployKeys.remove(params.id, deps.now());
  deps.changes.notify('events');
}

async function putGitToken(deps: Deps, { params, body, user, ifMatch }: Call<'putGitToken'>) {
  const { username = null, token, api_url = null } = body;
  if (api_url !== null) checkApiUrl(api_url);
  // Check the host before the token is sealed, so that a refused request creates no key.
  const host = tokenHost((await deps.projects.get(params.id)).git_url);
  const sealed = await deps.vault.seal(params.id, 'git-token', token);
  const record = {
    project_id: params.id,
    host,
    username,
    sealed,
    api_url,
    set_by: user.email,
    set_at: deps.now(),
  };
  const stored = await deps.gitTokens.put(record, (present) => {
    checkIfMatch(ifMatch, projectEtag(present, user.role));
    if (tokenHost(present.git_url) === host) return;
    // Refuse if the address has changed: somebody might have changed it to get the token.
    const why =
      `git_url is ${present.git_url} now, and the token was for ${host}; read the project and ` +
      'set the token again';
    throw new DomainError('wrong_state', why);
  });
  deps.changes.notify('events');
  return tokenView(stored);
}

async function getGitToken(deps: Deps, { params }: Call<'getGitToken'>) {
  const token = await deps.gitTokens.get(params.id);
  if (token === null) throw new DomainError('not_found', 'the project has no git token');
  return tokenView(token);
}

async function deleteGitToken(deps: Deps, { params }: Call<'deleteGitToken'>) {
  await deps.gitTokens.remove(params.id, deps.now());
  deps.changes.notify('events');
}

async function listGitHosts(deps: Deps) {
  const items = [...keysByHost(await deps.gitHosts.all())].map(([host, keys]) =>
    hostView(host, keys),
  );
  return { items: items.sort((a, b) => (a.host < b.host ? -1 : 1)), next_cursor: null };
}

async function getGitHost(deps: Deps, { params }: Call<'getGitHost'>) {
  const host = hostName(params.host);
  const view = hostView(host, await deps.gitHosts.of(host));
  if (view.keys.length === 0 && view.presented.length === 0)
    throw new DomainError('not_found', `no ssh host keys of ${host} are known`);
  return view;
}

async function putGitHost(deps: Deps, { params, body, user, request }: Call<'putGitHost'>) {
  const host = hostName(params.host);
  request.audited = { target: host };
  const { fingerprint, key_type = null } = body;
  const decide = (stored: readonly StoredKey[]) => {
    const change = trust(host, stored, { fingerprint, key_type }, user.email, deps.now());
    const event =
      change.put.length === 0
        ? null
        : `host key ${fingerprint} of ${host} is trusted now${replacing(change.remove)}`;
    return { ...change, event };
  };
  const keys = await deps.gitHosts.change(host, decide, deps.now());
  deps.changes.notify('events');
  return hostView(host, keys);
}

async function deleteGitHost(deps: Deps, { params, request }: Call<'deleteGitHost'>) {
  const host = hostName(params.host);
  request.audited = { target: host };
  await deps.gitHosts.remove(host, deps.now());
  deps.changes.notify('events');
}

async function agentKnownHosts(deps: Deps, { query, body, request }: Call<'agentKnownHosts'>) {
  await deps.agents.checkNode(request, query.node_id);
  const imported = await deps.gitHosts.import(query.node_id, body.keys, deps.now());
  if (imported > 0) deps.changes.notify('events');
  return { imported };
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
