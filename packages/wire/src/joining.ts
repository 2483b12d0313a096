/**
 * How machines become nodes: Berth agents use join tokens, contract-only agents need an admission.
 */
import { type Static, Type } from 'typebox';
import { ById, type Route } from './route.ts';
import { Id, listOf, literals, NODE_ROLES, orNull, PageQuery, Time } from './vocabulary.ts';

const HOSTNAME = '^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$';

export const JoinToken = Type.Object({
  id: Id,
  role: literals(NODE_ROLES),
  name: orNull(
    Type.String({ description: 'the only hostname that may use the token; null: any hostname' }),
  ),
  created_by: orNull(Type.String()),
  created_at: Time,
  expires_at: Time,
  used_at: orNull(Time),
  node_id: orNull(Type.String({ description: 'the node that joined with the token' })),
});
export type JoinToken = Static<typeof JoinToken>;

export const JoinTokenCreate = Type.Object(
  {
    role: literals(NODE_ROLES),
    name: Type.Optional(
      Type.String({
        pattern: HOSTNAME,
        description: 'the hostname that the machine must register under',
      }),
    ),
    ttl: Type.Optional(
      Type.String({
        maxLength: 20,
        description: 'how long the token is valid: 1m to 30d; default 1h',
      }),
    ),
  },
  { additionalProperties: false },
);
/** `token` is shown only in this answer. `command` reads the token from standard input. */
export const JoinTokenCreated = Type.Object({
  ...JoinToken.properties,
  token: Type.String(),
  command: Type.String({
    description:
      'one line for a root shell on the new machine; it asks for the token, or reads it from ' +
      'standard input',
  }),
  notes: Type.Array(Type.String(), { description: 'what must be done before the command works' }),
});

export const Admission = Type.Object({
  id: Id,
  hostname: Type.String(),
  role: literals(NODE_ROLES),
  address: orNull(Type.String({ description: 'address of its last registration' })),
  created_at: Time,
});
export type Admission = Static<typeof Admission>;

export const AdmissionCreate = Type.Object(
  { hostname: Type.String({ minLength: 1, maxLength: 253 }), role: literals(NODE_ROLES) },
  { additionalProperties: false },
);

export const JOINING_ROUTES = {
  getInstallScript: {
    method: 'GET',
    path: '/install.sh',
    who: 'public',
    scope: 'none',
    summary: 'Get the script that installs Berth on a fresh machine',
    status: 200,
  },
  getPackage: {
    method: 'GET',
    path: '/api/packages/:file',
    who: 'public',
    scope: 'none',
    summary: 'Get a package of Berth, which a new machine installs before it joins',
    params: Type.Object({
      file: Type.String({ minLength: 1, maxLength: 100, description: 'berth_VERSION_ARCH.deb' }),
    }),
    status: 200,
  },
  createJoinToken: {
    method: 'POST',
    path: '/api/nodes/join-tokens',
    who: 'admin',
    scope: 'none',
    summary: 'Create a join token, with which one machine can join once',
    body: JoinTokenCreate,
    status: 201,
    answer: JoinTokenCreated,
  },
  listJoinTokens: {
    method: 'GET',
    path: '/api/nodes/join-tokens',
    who: 'admin',
    scope: 'none',
    summary: 'List join tokens that have not expired, newest first, including used ones',
    query: Type.Object(PageQuery),
    status: 200,
    answer: listOf(JoinToken),
  },
  deleteJoinToken: {
    method: 'DELETE',
    path: '/api/nodes/join-tokens/:id',
    who: 'admin',
    scope: 'none',
    summary: 'Delete a join token; a node that joined with it stays',
    params: ById,
    status: 204,
  },
  createAdmission: {
    method: 'POST',
    path: '/api/nodes/admissions',
    who: 'admin',
    scope: 'none',
    summary: 'Let a contract-only node use AGENT_SECRET although REQUIRE_NODE_SECRETS is on',
    body: AdmissionCreate,
    status: 201,
    answer: Admission,
  },
  listAdmissions: {
    method: 'GET',
    path: '/api/nodes/admissions',
    who: 'admin',
    scope: 'none',
    summary: 'List the admitted contract-only nodes',
    status: 200,
    answer: listOf(Admission),
  },
  deleteAdmission: {
    method: 'DELETE',
    path: '/api/nodes/admissions/:id',
    who: 'admin',
    scope: 'none',
    summary: 'Delete an admission',
    params: ById,
    status: 204,
  },
} as const satisfies Record<string, Route>;
