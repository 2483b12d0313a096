/**
 * Creates the OpenAPI 3.1 document from the route table, without the routes that only Berth's own
 * processes call. Pure.
 */
import { defined } from '@berth/kit/defined';
import { ERRORS, type ErrorCode, ProblemDocument } from '@berth/wire/errors';
import type { Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { isRole, takesIdempotencyKey } from '../route-rules.ts';
import { sampleOf } from './samples.ts';
import { type Components, type Schema, toOpenapi } from './schemas.ts';

const DESCRIPTION = [
  'Self-hosted deployment platform. Sign in with `POST /api/auth/login` and send the token as ' +
    '`Authorization: Bearer`,',
  'or send a personal API token. Errors are problem documents (RFC 9457) with a `code`; ' +
    'a 422 names each field and rule in `errors[]`.',
  'Lists take `limit` and `cursor`. Times are RFC 3339, UTC.',
].join('\n');

const TAGS: Record<string, string> = {
  auth: 'Sign in, refresh and end sessions',
  users: 'People and their roles',
  tokens: 'Personal API tokens',
  'device-tokens': 'Tokens of devices, issued by the device flow',
  audit: 'Audit log: actors, actions and outcomes',
  events: 'Feed of changes',
  projects: 'Projects and their settings',
  hooks: 'Deliveries of forges',
  deployments: 'Deployments, their events and logs',
  instances: 'Containers of projects, one for each instance',
  placement: 'Preview of the node that a project would get, with scores',
  nodes: 'Machines, their containers and cached datasets',
  datasets: 'Datasets, their versions and history',
  system: 'Health, metrics, version, OpenAPI document and proxy configuration',
};

/**
 * Returns whether people and scripts call the route. Routes of agents and gateways need a secret;
 * docs/api.md describes them.
 */
const isShown = (route: Route): boolean => route.who !== 'agent' && route.who !== 'gateway';

export function openapiDocument(publicUrl: string): Schema {
  const components: Components = {};
  const problem = toOpenapi(ProblemDocument, components);
  const paths: Record<string, Record<string, Schema>> = {};
  const shown = Object.entries(ROUTES as Record<string, Route>).filter(([, route]) =>
    isShown(route),
  );
  for (const [name, route] of shown) {
    const path = route.path.replaceAll(/:([a-z_]+)/g, '{$1}');
    paths[path] = {
      ...paths[path],
      [route.method.toLowerCase()]: operationOf(name as RouteName, route, components, problem),
    };
  }
  const used = new Set(shown.map(([, route]) => tagOf(route)));
  return {
    openapi: '3.1.0',
    info: {
      title: 'Berth',
      version: '1',
      description: DESCRIPTION,
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: publicUrl }],
    tags: [...used].map((name) => ({
      name,
      ...defined({ description: TAGS[name] }),
    })),
    paths,
    components: {
      schemas: Object.fromEntries(Object.entries(components).sort(([a], [b]) => (a < b ? -1 : 1))),
      securitySchemes: { bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } },
    },
  };
}

function tagOf({ path }: Route): string {
  const first = path.startsWith('/api/') ? (path.split('/')[2] ?? '') : '';
  return TAGS[first] === undefined ? 'system' : first;
}

function operationOf(
  name: RouteName,
  route: Route,
  components: Components,
  problem: Schema,
): Schema {
  return {
    operationId: name,
    summary: route.summary,
    ...defined({
      description: isRole(route.who)
        ? `Requires the role ${route.who} or a higher one.`
        : undefined,
    }),
    tags: [tagOf(route)],
    security: isRole(route.who) ? [{ bearer: [] }] : [],
    ...parametersOf(route, components),
    ...defined({ requestBody: requestBodyOf(route, components) }),
    responses: { ...success(route, components), ...refusals(name, route, problem) },
  };
}

function requestBodyOf(route: Route, components: Parameters<typeof toOpenapi>[1]) {
  if (route.rawBody === true) return { required: false, content: { '*/*': {} } };
  if (route.body === undefined) return undefined;
  const json = { schema: toOpenapi(route.body, components), example: requestSample(route) };
  return { required: route.bodyOptional !== true, content: { 'application/json': json } };
}

/** Maximum number of fields of a request sample that shows all fields. */
const FEW_FIELDS = 4;

/**
 * Returns a small valid request: all fields if there are few, otherwise the required fields, or two
 * fields if none is required.
 */
const requestSample = (route: Route): unknown => {
  const body = route.body as { required?: string[]; properties?: Record<string, unknown> };
  const sample = sampleOf(route.body ?? {}) as Record<string, unknown>;
  if (Object.keys(sample).length <= FEW_FIELDS) return sample;
  const required = new Set(body.required);
  if (required.size === 0) return Object.fromEntries(Object.entries(sample).slice(0, 2));
  return Object.fromEntries(Object.entries(sample).filter(([key]) => required.has(key)));
};

// ── parameters ───────────────────────────────────────────────────────────────────────────────────────────────────────

type Properties = { properties?: Record<string, object>; required?: string[] };
const propertiesOf = (schema: object | undefined): Properties => schema ?? {};

function parametersOf(route: Route, components: Components): Schema {
  const params = Object.entries(propertiesOf(route.params).properties ?? {}).map(
    ([name, schema]) => ({
      name,
      in: 'path',
      required: true,
      schema: toOpenapi(schema, components),
    }),
  );
  const query = propertiesOf(route.query);
  const asked = Object.entries(query.properties ?? {}).map(([name, schema]) => ({
    name,
    in: 'query',
    required: query.required?.includes(name) === true,
    schema: toOpenapi(schema, components),
  }));
  const all = [...params, ...asked, ...requestHeaders(route)];
  return all.length === 0 ? {} : { parameters: all };
}

const header = (
  name: string,
  description: string,
  schema: Schema = { type: 'string' },
): Schema => ({
  name,
  in: 'header',
  required: false,
  description,
  schema,
});

/** The format that api/idempotency.ts accepts. */
const KEY = { type: 'string', minLength: 1, maxLength: 200, pattern: '^[!-~]([ -~]*[!-~])?$' };

function requestHeaders(route: Route): Schema[] {
  const list: Schema[] = [];
  if (takesIdempotencyKey(route))
    list.push(
      header(
        'Idempotency-Key',
        'For 24 h, the same key with the same body returns the first answer again.',
        KEY,
      ),
    );
  if (isHeld(route))
    list.push(
      header('If-None-Match', 'With `wait`, the request is held while the answer has this ETag.'),
    );
  if (route.locked === true)
    list.push(
      header(
        'If-Match',
        'ETag of the version that you read; an outdated ETag gets 412 `changed_meanwhile`.',
      ),
    );
  if (route.streams === true)
    list.push(
      header(
        'Last-Event-ID',
        'With `Accept: text/event-stream`, the stream continues after this event.',
      ),
    );
  return list;
}

const isHeld = (route: Route): boolean =>
  propertiesOf(route.query).properties?.['wait'] !== undefined;

// ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const text = (description: string): Schema => ({ description, schema: { type: 'string' } });

/** Content types of routes without an answer schema. */
const OTHER_CONTENT: Partial<Record<string, Schema>> = {
  '/metrics': { 'text/plain': { schema: { type: 'string' } } },
  '/install.sh': { 'text/x-shellscript': { schema: { type: 'string' } } },
  '/api/packages/:file': {
    'application/vnd.debian.binary-package': { schema: { type: 'string', format: 'binary' } },
  },
};

function success(route: Route, components: Components): Schema {
  if (route.status === 204) return { 204: { description: 'Done, without content' } };
  const content =
    route.answer === undefined
      ? (OTHER_CONTENT[route.path] ?? { 'application/json': { schema: { type: 'object' } } })
      : {
          'application/json': {
            schema: toOpenapi(route.answer, components),
            example: sampleOf(route.answer),
          },
        };
  const headers = {
    ...defined({
      ETag:
        route.etag === true
          ? text('Version of the resource, for If-Match and If-None-Match')
          : undefined,
      Location:
        route.status === 201 || route.status === 202 ? text('Path of the resource') : undefined,
      'Idempotent-Replayed': takesIdempotencyKey(route)
        ? text(
            '`true` if this is the stored answer to an earlier request with the same ' +
              'Idempotency-Key',
          )
        : undefined,
    }),
  };
  return {
    [route.status]: {
      description: DESCRIPTIONS[route.status] ?? 'Done',
      ...defined({ headers: Object.keys(headers).length === 0 ? undefined : headers }),
      content: {
        ...content,
        ...defined({
          'text/event-stream': route.streams === true ? { schema: { type: 'string' } } : undefined,
        }),
      },
    },
    ...defined({
      304: isHeld(route)
        ? { description: 'Nothing changed while the request was held' }
        : undefined,
      503: route.path === '/readyz' ? { description: 'Not ready', content } : undefined,
    }),
  };
}

const DESCRIPTIONS: Record<number, string> = {
  200: 'Done',
  201: 'Created',
  202: 'Accepted; the work continues in the background',
};

/**
 * Error codes that only handlers cause. All remaining codes follow from the route's row in the
 * route table.
 */
const CODES: Partial<Record<RouteName, readonly ErrorCode[]>> = {
  login: ['wrong_credentials', 'account_disabled', 'too_many_attempts'],
  exchange: [
    'unauthenticated',
    'no_role',
    'account_disabled',
    'forbidden',
    'gateway_unreachable',
    'too_many_attempts',
  ],
  refresh: ['refresh_token', 'account_disabled'],
  createProject: ['name_taken', 'domain_prefix_taken', 'domain_taken'],
  patchProject: ['domain_prefix_taken', 'domain_taken', 'being_deleted', 'busy'],
  createDataset: ['dataset_name_taken'],
  patchDataset: ['dataset_name_taken', 'being_deleted'],
  deleteDataset: ['dataset_in_use'],
  scanDataset: ['wrong_state', 'being_deleted'],
  datasetDiff: ['too_many_requests'],
  createDeployment: ['being_deleted', 'busy'],
  rollback: ['being_deleted', 'no_release', 'busy'],
  restartProject: ['being_deleted', 'no_release', 'wrong_state', 'busy'],
  stopProject: ['being_deleted', 'busy'],
  startProject: ['being_deleted', 'no_release', 'wrong_state', 'busy'],
  cancelDeployment: ['wrong_state', 'busy'],
  deploymentLogs: ['too_many_requests'],
  patchUser: ['last_admin', 'admin_by_settings'],
  deleteUser: ['last_admin', 'admin_by_settings'],
  createToken: ['too_many_tokens'],
  prewarmNode: ['wrong_state', 'being_deleted'],
  drainNode: ['being_deleted'],
  failoverNode: ['wrong_state', 'busy'],
  projectDomains: ['routes_unknown'],
  traefikConfig: ['routes_unknown'],
};

function codesOf(name: RouteName, route: Route): ErrorCode[] {
  return [
    ...(isRole(route.who) ? (['unauthenticated', 'forbidden'] as const) : []),
    ...(route.params === undefined ? [] : (['not_found'] as const)),
    ...(route.body === undefined
      ? []
      : (['invalid_json', 'body_too_large', 'unsupported_media_type'] as const)),
    ...(route.body === undefined && route.query === undefined ? [] : (['validation'] as const)),
    ...(takesIdempotencyKey(route) ? (['idempotency_mismatch'] as const) : []),
    ...(route.locked === true ? (['changed_meanwhile'] as const) : []),
    ...(CODES[name] ?? []),
  ];
}

/**
 * Returns one response for each status, which lists its codes. `default` covers errors that any
 * request can get.
 */
function refusals(name: RouteName, route: Route, problem: Schema): Schema {
  const byStatus = Map.groupBy(codesOf(name, route), (code) => ERRORS[code].status);
  const responses = [...byStatus]
    .sort(([a], [b]) => a - b)
    .map(([status, codes]) => [status, refusal(codes, problem)]);
  return {
    ...(Object.fromEntries(responses) as Schema),
    default: answerOf('Any other problem', problem),
  };
}

const refusal = (codes: ErrorCode[], problem: Schema): Schema =>
  answerOf(
    [...new Set(codes)].map((code) => `\`${code}\`: ${ERRORS[code].title}`).join('. '),
    problem,
  );

const answerOf = (description: string, problem: Schema): Schema => ({
  description,
  content: { 'application/problem+json': { schema: problem } },
});
