/**
 * Access to git repositories: deploy keys (ssh), git tokens (https) and the host keys that Berth
 * trusts. No answer contains a private key or a token, except the answer with which a builder
 * claims a build.
 */
import { type Static, Type } from 'typebox';
import { ByName, type Route } from './route.ts';
import { listOf, literals, orNull, Time } from './vocabulary.ts';

export const DeployKey = Type.Object({
  public_key: Type.String({
    description: 'OpenSSH format; add it to the repository as a deploy key that may only read',
  }),
  fingerprint: Type.String({ description: 'SHA256:…, as forges and ssh show it' }),
  created_at: Time,
});
export type DeployKey = Static<typeof DeployKey>;

export const GitTokenSet = Type.Object(
  {
    username: Type.Optional(
      Type.String({
        pattern: '^[!-9;-~]+$',
        maxLength: 200,
        description: 'default: a name that the known forges accept',
      }),
    ),
    token: Type.String({ pattern: '^[!-~]+$', maxLength: 4_000 }),
    api_url: Type.Optional(
      orNull(
        Type.String({
          maxLength: 2_000,
          description: 'address of the forge’s API, for commit statuses',
        }),
      ),
    ),
  },
  { additionalProperties: false },
);
export const GitToken = Type.Object({
  host: Type.String({ description: 'the only host that gets the token' }),
  username: orNull(Type.String()),
  api_url: orNull(Type.String()),
  set_by: orNull(Type.String()),
  set_at: Time,
});
export type GitToken = Static<typeof GitToken>;

/**
 * Capabilities of an agent. GIT_ACCESS: it fetches with deploy keys, git tokens and trusted host
 * keys. BUILD_SETTINGS: it applies build settings.
 */
export const GIT_ACCESS = 'git_access';
export const BUILD_SETTINGS = 'build_settings';
/** Capability of builders that fetch Git LFS files. */
export const GIT_LFS = 'git_lfs';

/** An ssh fingerprint of a host key. */
export const Fingerprint = Type.String({ pattern: '^SHA256:[A-Za-z0-9+/]{43}$' });
const KeyType = Type.String({
  pattern: '^[a-z0-9@.-]{1,60}$',
  description: 'for example ssh-ed25519',
});
export const HOST_KEY_SOURCES = ['berth', 'admin', 'builder'] as const;
export type HostKeySource = (typeof HOST_KEY_SOURCES)[number];
const TrustedKey = Type.Object({
  fingerprint: Fingerprint,
  key_type: orNull(KeyType),
  source: literals(HOST_KEY_SOURCES, {
    description:
      'berth: built into Berth; admin: an admin trusts it; builder: a builder trusted it ' +
      'before Berth kept host keys',
  }),
  added_by: orNull(Type.String()),
  added_at: orNull(Time),
});
const PresentedKey = Type.Object({
  fingerprint: Fingerprint,
  key_type: orNull(KeyType),
  seen_at: Time,
});
export const GitHost = Type.Object({
  host: Type.String({ description: 'host, or host:port if the port is not 22' }),
  keys: Type.Array(TrustedKey, {
    description: 'the trusted host keys; empty: Berth refuses the host',
  }),
  presented: Type.Array(PresentedKey, {
    description: 'keys that the host presented to a builder and that are not trusted',
  }),
});
export type GitHost = Static<typeof GitHost>;
export const GitHostTrust = Type.Object(
  { fingerprint: Fingerprint, key_type: Type.Optional(KeyType) },
  { additionalProperties: false },
);
/** The control plane checks the host, so that an invalid host gets 422 and not 404. */
const ByHost = Type.Object({
  host: Type.String({ minLength: 1, description: 'host, or host:port if the port is not 22' }),
});

/** A host key that a builder saw. */
export const SeenHostKey = Type.Object({
  host: Type.String({ minLength: 1, maxLength: 300 }),
  key_type: KeyType,
  fingerprint: Fingerprint,
});
export type SeenHostKey = Static<typeof SeenHostKey>;
export const MAX_SEEN_KEYS = 200;
/** Host keys that a builder trusted before the control plane stored host keys. */
export const KnownHosts = Type.Object({
  keys: Type.Array(SeenHostKey, { maxItems: MAX_SEEN_KEYS }),
});

/**
 * Access of a builder to a private repository. Sent only in the answer to the claim of a build, and
 * only to agents with the capability `git_access`.
 */
export const GitAccess = Type.Object({
  /** The trusted host keys of all hosts. */
  hosts: Type.Array(Type.Object({ host: Type.String(), fingerprints: Type.Array(Type.String()) })),
  deploy_key: Type.Optional(
    Type.Object({ private_key: Type.String(), fingerprint: Type.String() }),
  ),
  /** `host` includes the port if the address has one. */
  token: Type.Optional(
    Type.Object({ host: Type.String(), username: Type.String(), token: Type.String() }),
  ),
});
export type GitAccess = Static<typeof GitAccess>;

export const GIT_ROUTES = {
  createDeployKey: {
    method: 'POST',
    path: '/api/projects/:id/deploy-key',
    who: 'developer',
    scope: 'project',
    summary: 'Create the deploy key of a project; a repeated call replaces it',
    params: ByName,
    status: 201,
    location: '/api/projects/:id/deploy-key',
    answer: DeployKey,
  },
  getDeployKey: {
    method: 'GET',
    path: '/api/projects/:id/deploy-key',
    who: 'viewer',
    scope: 'project',
    summary: 'Get the public part of a project’s deploy key',
    params: ByName,
    status: 200,
    answer: DeployKey,
  },
  deleteDeployKey: {
    method: 'DELETE',
    path: '/api/projects/:id/deploy-key',
    who: 'developer',
    scope: 'project',
    summary: 'Delete the deploy key of a project',
    params: ByName,
    status: 204,
  },
  putGitToken: {
    method: 'PUT',
    path: '/api/projects/:id/git-token',
    who: 'developer',
    scope: 'project',
    summary:
      'Set the token with which Berth reads the repository over https; no answer contains it; ' +
      '`If-Match` takes the ETag of the project',
    params: ByName,
    body: GitTokenSet,
    status: 200,
    answer: GitToken,
    locked: true,
  },
  getGitToken: {
    method: 'GET',
    path: '/api/projects/:id/git-token',
    who: 'viewer',
    scope: 'project',
    summary: 'Get the host and the user name of a project’s git token, without the token',
    params: ByName,
    status: 200,
    answer: GitToken,
  },
  deleteGitToken: {
    method: 'DELETE',
    path: '/api/projects/:id/git-token',
    who: 'developer',
    scope: 'project',
    summary: 'Delete the git token of a project',
    params: ByName,
    status: 204,
  },
  listGitHosts: {
    method: 'GET',
    path: '/api/git-hosts',
    who: 'viewer',
    scope: 'none',
    summary:
      'List the git hosts with their trusted ssh host keys, and the hosts that presented other ' +
      'keys',
    status: 200,
    answer: listOf(GitHost),
  },
  getGitHost: {
    method: 'GET',
    path: '/api/git-hosts/:host',
    who: 'viewer',
    scope: 'none',
    summary: 'Get the ssh host keys of a git host',
    params: ByHost,
    status: 200,
    answer: GitHost,
  },
  putGitHost: {
    method: 'PUT',
    path: '/api/git-hosts/:host',
    who: 'admin',
    scope: 'none',
    summary: 'Trust an ssh host key; it replaces the trusted key of the same type',
    params: ByHost,
    body: GitHostTrust,
    status: 200,
    answer: GitHost,
  },
  deleteGitHost: {
    method: 'DELETE',
    path: '/api/git-hosts/:host',
    who: 'admin',
    scope: 'none',
    summary: 'Delete the trusted host keys of a git host; the keys that are built into Berth stay',
    params: ByHost,
    status: 204,
  },
  agentKnownHosts: {
    method: 'POST',
    path: '/api/agent/known-hosts',
    who: 'agent',
    scope: 'none',
    summary:
      'Import the host keys that a builder trusted before; the control plane accepts them once',
    query: Type.Object({ node_id: Type.String({ minLength: 1, maxLength: 64 }) }),
    body: KnownHosts,
    status: 200,
    answer: Type.Object({ imported: Type.Integer() }),
  },
} as const satisfies Record<string, Route>;
