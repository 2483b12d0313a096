/**
 * Push to deploy: hooks that forges call, the deliveries of a hook, and commit statuses. A hook is
 * only a hint to check the branch; it never determines what is deployed.
 */
import { type Static, Type } from 'typebox';
import { ById, ByName, type Route } from './route.ts';
import { CommitId, Id, listOf, literals, orNull, PageQuery, Time } from './vocabulary.ts';

export const FORGES = ['github', 'gitlab', 'gitea', 'forgejo', 'bitbucket', 'generic'] as const;
export type Forge = (typeof FORGES)[number];

/** Prefix of Standard Webhooks secrets; base64 follows. */
export const STANDARD_SECRET_PREFIX = 'whsec_';
/** Maximum size of a delivery in bytes. */
export const MAX_DELIVERY_BYTES = 25 * 1_048_576;

export const Hook = Type.Object({
  forge: literals(FORGES),
  url: Type.String({ description: 'the address to enter at the forge' }),
  refused: Type.Integer({
    minimum: 0,
    description: 'number of refused deliveries since the hook was created',
  }),
  created_at: Time,
  updated_at: Time,
});
export type Hook = Static<typeof Hook>;

export const HookPut = Type.Object(
  {
    forge: literals(FORGES),
    secret: Type.Optional(
      Type.String({
        minLength: 16,
        maxLength: 200,
        pattern: '^[!-~]+$',
        description:
          'a secret that the forge generated, such as `whsec_…`; default: Berth generates one',
      }),
    ),
  },
  { additionalProperties: false },
);
export const HookCreated = Type.Object({
  ...Hook.properties,
  secret: orNull(
    Type.String({ description: 'shown only in this answer; null if the request gave the secret' }),
  ),
});
export type HookCreated = Static<typeof HookCreated>;

export const VERDICTS = ['deployed', 'skipped', 'refused'] as const;
export type Verdict = (typeof VERDICTS)[number];

export const Delivery = Type.Object({
  id: Id,
  at: Time,
  event: Type.String({
    description:
      'what the forge reported: `push`, `tag`, `ping`, `merge request` or its own name for the ' +
      'event',
  }),
  branch: orNull(
    Type.String({ description: 'the pushed branch; null if the delivery does not name one' }),
  ),
  commit: orNull(CommitId),
  verdict: orNull(
    Type.Unsafe<Verdict>({
      ...literals(VERDICTS),
      description: 'null while Berth checks the branch',
    }),
  ),
  reason: orNull(Type.String()),
  deployment_id: orNull(Id),
});
export type Delivery = Static<typeof Delivery>;

const ByDelivery = Type.Object({ ...ByName.properties, delivery: Id });
const DELIVERY_PATH = '/api/projects/:id/hook/deliveries/:delivery';

export const HOOK_ROUTES = {
  putHook: {
    method: 'PUT',
    path: '/api/projects/:id/hook',
    who: 'developer',
    scope: 'project',
    summary:
      'Create the hook of a project, or change its forge and its secret; a generated secret is ' +
      'shown once',
    params: ByName,
    body: HookPut,
    status: 200,
    answer: HookCreated,
  },
  getHook: {
    method: 'GET',
    path: '/api/projects/:id/hook',
    who: 'viewer',
    scope: 'project',
    summary: 'Get the hook of a project, without its secret',
    params: ByName,
    status: 200,
    answer: Hook,
  },
  deleteHook: {
    method: 'DELETE',
    path: '/api/projects/:id/hook',
    who: 'developer',
    scope: 'project',
    summary: 'Delete the hook of a project and its deliveries',
    params: ByName,
    status: 204,
  },
  listDeliveries: {
    method: 'GET',
    path: '/api/projects/:id/hook/deliveries',
    who: 'viewer',
    scope: 'project',
    summary: 'List the deliveries of a hook with their verdicts, newest first',
    params: ByName,
    query: Type.Object(PageQuery),
    status: 200,
    answer: listOf(Delivery),
  },
  getDelivery: {
    method: 'GET',
    path: DELIVERY_PATH,
    who: 'viewer',
    scope: 'project',
    summary: 'Get a delivery of a hook',
    params: ByDelivery,
    status: 200,
    answer: Delivery,
  },
  redeliver: {
    method: 'POST',
    path: `${DELIVERY_PATH}/redeliver`,
    who: 'developer',
    scope: 'project',
    summary: 'Check the branch of a delivery again; the answer is a new delivery',
    params: ByDelivery,
    status: 201,
    location: DELIVERY_PATH,
    answer: Delivery,
  },
  receiveHook: {
    method: 'POST',
    path: '/api/hooks/:id',
    who: 'public',
    scope: 'none',
    summary:
      'Receive a delivery of a forge, up to 25 MiB; every invalid delivery gets the answer of ' +
      'an unknown path, 404',
    params: ById,
    rawBody: true,
    status: 202,
    location: DELIVERY_PATH,
    answer: Type.Object({ id: Id }),
  },
} as const satisfies Record<string, Route>;
