/** Secrets of a project. The API never returns a value. */
import { type Static, Type } from 'typebox';
import { ByName, type Route } from './route.ts';
import { listOf, literals, orNull, Time } from './vocabulary.ts';

/** `run`: the container gets the secret. `build`: the build gets the secret. */
const SECRET_SCOPES = ['run', 'build'] as const;
export type SecretScope = (typeof SECRET_SCOPES)[number];
/**
 * How a container gets the secret: as an environment variable, or as the file /run/secrets/NAME. In
 * a build, the Dockerfile decides.
 */
export const SECRET_DELIVERIES = ['env', 'file'] as const;
export type SecretDelivery = (typeof SECRET_DELIVERIES)[number];

/** Maximum number of secrets of one project. */
export const MAX_SECRETS = 100;
/** Maximum size in bytes of one value, and of all values of a project together. */
export const MAX_SECRET_BYTES = 65_536;
export const MAX_SECRETS_BYTES = 1_048_576;

/**
 * Capabilities of an agent. CAN_SECRETS: it gets secrets with its claims. CAN_SECRET_FILES: it
 * mounts file secrets.
 */
export const CAN_SECRETS = 'secrets';
export const CAN_SECRET_FILES = 'secret_files';

const Scope = literals(SECRET_SCOPES);
const As = literals(SECRET_DELIVERIES);

export const Secret = Type.Object({
  name: Type.String(),
  fingerprint: Type.String({
    description: 'changes when the value changes (an HMAC of the value with a key of the project)',
  }),
  scope: Scope,
  as: As,
  set_by: orNull(Type.String({ description: 'e-mail address' })),
  set_at: Time,
});
export type Secret = Static<typeof Secret>;

/** domain/secrets/secrets.ts checks the name and counts the bytes of the value. */
const SecretSet = Type.Object(
  {
    value: Type.String({
      minLength: 1,
      maxLength: MAX_SECRET_BYTES,
      description: 'text of up to 64 KiB in UTF-8',
    }),
    scope: Type.Optional(Scope),
    as: Type.Optional(As),
  },
  { additionalProperties: false },
);
const BySecret = Type.Object({ ...ByName.properties, name: Type.String({ minLength: 1 }) });

export const SECRET_ROUTES = {
  listSecrets: {
    method: 'GET',
    path: '/api/projects/:id/secrets',
    who: 'viewer',
    scope: 'project',
    summary: 'List the secrets of a project without their values',
    params: ByName,
    status: 200,
    answer: listOf(Secret),
    etag: true,
  },
  getSecret: {
    method: 'GET',
    path: '/api/projects/:id/secrets/:name',
    who: 'viewer',
    scope: 'project',
    summary: 'Get a secret without its value',
    params: BySecret,
    status: 200,
    answer: Secret,
    etag: true,
  },
  putSecret: {
    method: 'PUT',
    path: '/api/projects/:id/secrets/:name',
    who: 'developer',
    scope: 'project',
    summary: 'Set a secret; it takes effect with the next deployment or build',
    params: BySecret,
    body: SecretSet,
    status: 200,
    answer: Secret,
    etag: true,
    locked: true,
  },
  deleteSecret: {
    method: 'DELETE',
    path: '/api/projects/:id/secrets/:name',
    who: 'developer',
    scope: 'project',
    summary: 'Delete a secret; running containers keep it',
    params: BySecret,
    status: 204,
    locked: true,
  },
  importSecret: {
    method: 'POST',
    path: '/api/projects/:id/secrets/:name/import',
    who: 'developer',
    scope: 'project',
    summary: 'Move an environment variable to a secret of the same name',
    params: BySecret,
    status: 201,
    location: '/api/projects/:id/secrets/:name',
    answer: Secret,
    etag: true,
    locked: true,
  },
} as const satisfies Record<string, Route>;
