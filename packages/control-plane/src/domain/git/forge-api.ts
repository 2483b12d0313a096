/** Builds the request that sets a commit status at a forge. Pure. */
import type { Forge } from '@berth/wire/hook';
import type { CommitState } from './commit-statuses.ts';

export type KnownForge = Exclude<Forge, 'generic'>;
export type StatusTarget = { forge: KnownForge; base: URL; path: string };
export type StatusMessage = {
  state: CommitState;
  commit: string;
  context: string;
  description: string;
  targetUrl: string;
};
export type ForgeToken = { username: string | null; token: string };
/** `status` is 0 if the forge could not be reached; `text` then says why. */
export type ForgeAnswer = {
  status: number;
  text: string;
  retryAfterMs: number;
  isInternal?: boolean;
};
export type ForgeRequest = { url: URL; headers: Record<string, string>; body: string };

/** Hosts with a known forge and API address. */
const KNOWN_HOSTS: Record<string, { forge: KnownForge; api: string }> = {
  'github.com': { forge: 'github', api: 'https://api.github.com/' },
  'gitlab.com': { forge: 'gitlab', api: 'https://gitlab.com/api/v4/' },
  'bitbucket.org': { forge: 'bitbucket', api: 'https://api.bitbucket.org/2.0/' },
  'codeberg.org': { forge: 'forgejo', api: 'https://codeberg.org/api/v1/' },
};

/** Path of the API below the origin of a forge. */
const API_PATHS: Record<KnownForge, string> = {
  github: '/api/v3/',
  gitlab: '/api/v4/',
  gitea: '/api/v1/',
  forgejo: '/api/v1/',
  bitbucket: '/rest/build-status/1.0/',
};

type Repository = { hostname: string; origin: string | null; path: string };

/**
 * Parses an address that git-url.ts has accepted. `origin` is null unless it is an https address.
 */
function repositoryOf(gitUrl: string): Repository {
  const tidy = (path: string): string => path.replace(/^\/+|\/+$/g, '').replace(/\.git$/, '');
  if (!gitUrl.includes('://')) {
    const [, hostname = '', path = ''] = /^[^@/:]*@(\[[^\]]*\]|[^:/@]*):(.*)$/.exec(gitUrl) ?? [];
    return { hostname: plain(hostname), origin: null, path: tidy(path) };
  }
  const url = new URL(gitUrl);
  return {
    hostname: plain(url.hostname),
    origin: url.protocol === 'https:' ? url.origin : null,
    path: tidy(decoded(url.pathname)),
  };
}
/** Decodes a path; returns it unchanged if it contains an invalid percent sequence. */
function decoded(path: string): string {
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
}
const plain = (host: string): string => host.toLowerCase().replace(/\.$/, '');

/**
 * Returns the target for the statuses of a project, or null if its forge or API address is unknown.
 */
export function statusTarget(
  gitUrl: string,
  hookForge: Forge | null,
  apiUrl: string | null,
): StatusTarget | null {
  const { hostname, origin, path } = repositoryOf(gitUrl);
  const knownHost = Object.hasOwn(KNOWN_HOSTS, hostname) ? KNOWN_HOSTS[hostname] : undefined;
  if (knownHost !== undefined)
    return { forge: knownHost.forge, base: new URL(knownHost.api), path };
  const forge = hookForge === null || hookForge === 'generic' ? null : hookForge;
  const address = origin ?? apiUrl;
  if (forge === null || address === null) return null;
  const base = new URL(address);
  // An address with a path is the API address; without a path it is the origin of the forge.
  base.pathname =
    base.pathname === '/' ? API_PATHS[forge] : `${base.pathname.replace(/\/+$/, '')}/`;
  return { forge, base, path };
}

const encoded = (path: string): string =>
  path.toWellFormed().split('/').map(encodeURIComponent).join('/');
/** Returns `owner/name`. If the forge runs below a path of its host, the path has more parts. */
const lastTwo = (path: string): string => encoded(path.split('/').slice(-2).join('/'));
const BITBUCKET_STATES = {
  pending: 'INPROGRESS',
  success: 'SUCCESSFUL',
  failure: 'FAILED',
} as const;
const GITLAB_STATES = { pending: 'pending', success: 'success', failure: 'failed' } as const;
/** Bitbucket limits keys to 40 characters. */
const MAX_KEY = 40;

export function statusRequest(
  { forge, base, path }: StatusTarget,
  message: StatusMessage,
  { username, token }: ForgeToken,
): ForgeRequest {
  const { state, commit, context, description, targetUrl: target_url } = message;
  const request = (to: string, authorization: string, body: object): ForgeRequest => ({
    url: new URL(to, base),
    headers: {
      authorization,
      'content-type': 'application/json',
      accept: 'application/json',
      'user-agent': 'berth',
    },
    body: JSON.stringify(body),
  });
  const bearer = `Bearer ${token}`;
  switch (forge) {
    case 'github':
      return request(`repos/${lastTwo(path)}/statuses/${commit}`, bearer, {
        state,
        context,
        description,
        target_url,
      });
    case 'gitea':
    case 'forgejo':
      return request(`repos/${lastTwo(path)}/statuses/${commit}`, `token ${token}`, {
        state,
        context,
        description,
        target_url,
      });
    case 'gitlab':
      return request(`projects/${encodeURIComponent(path)}/statuses/${commit}`, bearer, {
        state: GITLAB_STATES[state],
        name: context,
        description,
        target_url,
      });
    case 'bitbucket': {
      const isPerson = username !== null && username !== 'x-token-auth';
      const authorization = isPerson
        ? `Basic ${Buffer.from(`${username}:${token}`).toString('base64')}`
        : bearer;
      const body = {
        key: context.slice(0, MAX_KEY),
        name: context,
        state: BITBUCKET_STATES[state],
        description,
        url: target_url,
      };
      // Bitbucket Data Center sets the status of a commit without its repository.
      const to =
        base.hostname === 'api.bitbucket.org'
          ? `repositories/${lastTwo(path)}/commit/${commit}/statuses/build`
          : `commits/${commit}`;
      return request(to, authorization, body);
    }
  }
}

/** Returns whether GitLab rejected the status because the commit already has it. */
export const isSetAlready = (forge: KnownForge, status: number, answer: string): boolean =>
  forge === 'gitlab' && status === 400 && answer.includes('Cannot transition status');
