/**
 * Example values for schemas, by field name. They are deterministic, and a test checks each value
 * against its schema.
 */
type Schema = {
  type?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  anyOf?: Schema[];
  enum?: unknown[];
  const?: unknown;
  format?: string;
  pattern?: string;
  minLength?: number;
  minimum?: number;
  exclusiveMinimum?: number;
  patternProperties?: Record<string, Schema>;
  default?: unknown;
};

const ID = 'k3v9x2m7q4';
const SHA256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08';
const TIME = '2026-11-23T09:30:00.000Z';

/** Realistic texts by field name. Values for other fields are derived from the schema. */
const TEXTS: Record<string, string> = {
  name: 'shop',
  email: 'ada@example.com',
  password: 'correct horse battery staple',
  old_password: 'correct horse battery staple',
  new_password: 'seven brown foxes at noon',
  git_url: 'https://git.example.com/team/shop.git',
  branch: 'main',
  dockerfile_path: 'Dockerfile',
  build_context: 'app',
  build_target: 'web',
  public_key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI… berth:shop',
  fingerprint: 'SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU',
  key_type: 'ssh-ed25519',
  host: 'git.example.com',
  username: 'deploy-bot',
  secret: 'n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is',
  event: 'push',
  api_url: 'https://git.example.com/api/v1',
  set_by: 'ada@example.com',
  added_by: 'ada@example.com',
  domain_prefix: 'shop',
  url: 'https://shop.example.com',
  health_path: '/healthz',
  mount_path: '/data/prices',
  nfs_path: 'team/prices',
  path: 'prices/2026-11.csv',
  hostname: 'worker-1',
  node_name: 'worker-1',
  host_ip: '10.0.0.7',
  commit: '4f1d2c3b5a697887766554433221100ffeeddccb',
  image_tag: 'registry.example.com/shop:4f1d2c3b5a697887766554433221100ffeeddccb',
  image_digest: `sha256:${SHA256}`,
  manifest_digest: `sha256:${SHA256}`,
  digest: `sha256:${SHA256}`,
  checksum: SHA256,
  previous_checksum: SHA256,
  note: 'New checkout page',
  waiting: 'deployment 6 is still deploying',
  commit_message: 'Add the checkout page',
  commit_author: 'Ada Lovelace',
  message: 'live: the reverse proxy serves the new route',
  kind: 'running',
  text: '#7 [2/3] RUN npm ci',
  step: '[2/3] RUN npm ci',
  agent_version: '0.1.0',
  token: 'berthpat_4kq…',
  refresh_token: 'r_8sd…',
  code: 'build_step_failed',
  arch: 'amd64',
  project: 'shop',
  value: 'https://api.example.com',
  action: 'createDeployment',
  env_name: 'API_URL',
  address: '192.0.2.7',
  request_id: 'b6f7c1d0-6f0e-4a55-9b6c-0c8f6f6f2d10',
  user_agent: 'berth/0.1.0',
  capabilitie: 'look',
  detail: 'the container answers',
  reason: 'the node is offline',
  node: '24.21.0',
  schema: '0018_hooks',
  oldest_agent: '0.1.0',
  version: '0.1.0',
  unavailable: 'the log was deleted on 2026-11-23',
  watch_path: 'src',
  build_arg_name: 'API_URL',
  ttl: '1h',
  label: 'a',
  admin_label: 'a',
  device: '0',
};
/** Keys of objects by field name; `API_URL` for all others. */
const KEYS: Record<string, string> = {
  // The body of a scale has no name.
  '': 'web',
  refused: 'cordoned',
  labels: 'zone',
  admin_labels: 'zone',
  devices: 'nvidia.com/gpu',
};
/** Values of fields whose schema has no type, because a bad value is ignored. */
const UNTYPED: Record<string, unknown> = {
  cpus: 8,
  memory_bytes: 34_359_738_368,
  labels: { zone: 'a' },
  devices: { 'nvidia.com/gpu': ['0'] },
};
const NUMBERS: Record<string, number> = {
  container_port: 8080,
  host_port: 32768,
  generation: 7,
  version: 3,
  bytes: 1_048_576,
  files: 120,
  max_storage: 1_000_000_000_000,
  free_storage: 900_000_000_000,
  memory_bytes: 536_870_912,
  drain_seconds: 5,
  stop_grace_seconds: 10,
  start_seconds: 120,
  expires_in: 3600,
  seq: 42,
  next: 42,
  limit: 50,
  max_builds: 1,
};

/**
 * Values that fit together in an object with the fields `having`. They replace the values by field
 * name.
 */
const TOGETHER: readonly { having: readonly string[]; values: Record<string, unknown> }[] = [
  {
    having: ['verdict'],
    values: {
      verdict: 'skipped',
      reason: 'the message of commit 4f1d2c3b contains [skip ci]',
      deployment_id: null,
    },
  },
  {
    having: ['forge', 'url'],
    values: { url: 'https://berth.example.com/api/hooks/k3v9x2m7q4', refused: 0, secret: null },
  },
  {
    having: ['status', 'since', 'cause'],
    values: {
      status: 'drifted',
      detail: 'the project’s env changed since this deployment; deploy the project to apply it',
      cause: 'settings_changed',
    },
  },
  {
    having: ['process', 'number', 'state'],
    values: { process: 'web', number: 2, state: 'serving', node_name: 'node-2', detail: null },
  },
  { having: ['name', 'count'], values: { name: 'web', count: 3 } },
  {
    having: ['kind', 'text'],
    values: {
      kind: 'setting_missing',
      text: 'REGISTRY_ADDR is not set: nothing can be built or deployed',
    },
  },
  { having: ['given_up'], values: { state: 'success', error: null } },
  { having: ['ok'], values: { ok: true, version: '28.5.2', error: null } },
  {
    having: ['as'],
    values: { name: 'API_KEY', value: 'n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is', fingerprint: SHA256 },
  },
  { having: ['api_url'], values: { token: 'n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is' } },
  { having: ['accept_share'], values: { accept_share: true } },
];

/**
 * Fields that are null in an object with the status `running` or `ok`, because a sample value would
 * contradict the status.
 */
const NULL_WHILE_WELL: ReadonlySet<string> = new Set([
  'error',
  'waiting',
  'progress',
  'problem',
  'log_removed_at',
  'story_removed_at',
]);

/** Returns a sample for the field `name`, including optional fields. */
export function sampleOf(given: object, name = ''): unknown {
  const schema = given as Schema;
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined)
    return ['running', 'ok'].find((word) => schema.enum?.includes(word)) ?? schema.enum[0];
  if (schema.anyOf !== undefined)
    return sampleOf(schema.anyOf.find((s) => s.type !== 'null') ?? {}, name);
  switch (schema.type) {
    case 'object':
      return objectOf(schema, name);
    case 'array':
      return schema.items === undefined ? [] : [sampleOf(schema.items, name.replace(/s$/, ''))];
    case 'boolean':
      return schema.default ?? false;
    case 'integer':
    case 'number':
      return schema.default ?? Math.max(NUMBERS[name] ?? 1, schema.minimum ?? 0);
    case 'string':
      return textOf(schema, name);
    default:
      return UNTYPED[name] ?? null;
  }
}

function objectOf(schema: Schema, name: string): Record<string, unknown> {
  if (schema.properties === undefined) {
    const [value] = Object.values(schema.patternProperties ?? {});
    const key = KEYS[name];
    if (value === undefined) return {};
    return key === undefined
      ? { API_URL: sampleOf(value, 'value') }
      : { [key]: sampleOf(value, name.replace(/s$/, '')) };
  }
  const own = Object.fromEntries(
    Object.entries(schema.properties).map(([key, value]) => [key, sampleOf(value, key)]),
  );
  const { values = {} } = TOGETHER.find(({ having }) => having.every((key) => key in own)) ?? {};
  const sample = Object.fromEntries(
    Object.entries(own).map(([key, value]) => [key, key in values ? values[key] : value]),
  );
  if (sample['status'] !== 'running' && sample['status'] !== 'ok') return sample;
  const isNull = (key: string): boolean =>
    NULL_WHILE_WELL.has(key) && isNullable(schema.properties?.[key]);
  return Object.fromEntries(
    Object.entries(sample).map(([key, value]) => [key, isNull(key) ? null : value]),
  );
}

const isNullable = (schema: Schema | undefined): boolean =>
  schema?.anyOf?.some((s) => s.type === 'null') ?? false;

function textOf(schema: Schema, name: string): string {
  if (schema.format === 'date-time') return TIME;
  const fits = (text: string): boolean =>
    schema.pattern === undefined || new RegExp(schema.pattern).test(text);
  const sampleText = TEXTS[name];
  if (sampleText !== undefined && fits(sampleText) && sampleText.length >= (schema.minLength ?? 0))
    return sampleText;
  return (
    [ID, SHA256, `sha256:${SHA256}`, TEXTS['commit'] ?? '', '/data', 'ada@example.com'].find(
      fits,
    ) ?? ID
  );
}
