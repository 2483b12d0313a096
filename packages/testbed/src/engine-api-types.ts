/**
 * Types of the Docker Engine API that the agent uses, from the API's own OpenAPI document
 * (scripts/engine-api.ts writes them).
 */
import { defined } from '@berth/kit/defined';
import openapiTS, { astToString, type OpenAPI3 } from 'openapi-typescript';
import { parse } from 'yaml';

const OPERATIONS: readonly (readonly [method: string, path: string])[] = [
  ['get', '/version'],
  ['get', '/info'],
  ['get', '/events'],
  ['get', '/system/df'],
  ['post', '/auth'],
  ['post', '/build/prune'],
  ['get', '/containers/json'],
  ['post', '/containers/create'],
  ['get', '/containers/{id}/json'],
  ['get', '/containers/{id}/logs'],
  ['get', '/containers/{id}/archive'],
  ['post', '/containers/{id}/start'],
  ['post', '/containers/{id}/stop'],
  ['post', '/containers/{id}/restart'],
  ['post', '/containers/{id}/rename'],
  ['post', '/containers/{id}/update'],
  ['post', '/containers/{id}/wait'],
  ['post', '/containers/{id}/attach'],
  ['post', '/containers/{id}/exec'],
  ['delete', '/containers/{id}'],
  ['get', '/exec/{id}/json'],
  ['post', '/exec/{id}/start'],
  ['get', '/images/json'],
  ['post', '/images/create'],
  ['get', '/images/{name}/json'],
  ['delete', '/images/{name}'],
  ['get', '/networks'],
  ['post', '/networks/create'],
  ['get', '/networks/{id}'],
  ['delete', '/networks/{id}'],
];
const HEADER = `/**
 * Types of the Docker Engine API 1.41, written by scripts/engine-api.ts from the API's own OpenAPI
 * document. Do not edit. Engines leave out fields, and send null where the
 * document does not say so.
 */

`;

/** The fields that the agent reads or sends, of schemas with many more. Others are kept whole. */
const FIELDS: Readonly<Record<string, readonly string[]>> = {
  ContainerConfig: [
    ...['Env', 'ExposedPorts', 'Cmd', 'Entrypoint', 'Image', 'Labels', 'StopSignal', 'Tty'],
    ...['AttachStdin', 'OpenStdin', 'StdinOnce'],
  ],
  ContainerSummary: ['Id', 'ImageID', 'Labels'],
  EventMessage: ['Type', 'Action', 'Actor', 'time', 'timeNano'],
  HostConfig: [
    ...['CapDrop', 'LogConfig', 'Mounts', 'NetworkMode', 'PortBindings', 'RestartPolicy'],
    'SecurityOpt',
  ],
  Resources: ['DeviceRequests', 'Memory', 'MemorySwap', 'NanoCpus', 'PidsLimit'],
  ImageConfig: [
    ...['User', 'Entrypoint', 'Cmd', 'ExposedPorts', 'Volumes', 'Healthcheck', 'Shell', 'Env'],
  ],
  ImageInspect: ['Architecture', 'Config', 'Id', 'Size', 'Variant'],
  ImageSummary: ['Created', 'Id', 'RepoDigests', 'RepoTags', 'SharedSize', 'Size'],
  Mount: ['Target', 'Source', 'Type', 'ReadOnly'],
  Network: ['Created', 'Id', 'IPAM', 'Labels', 'Name', 'Options'],
  NetworkSettings: ['Ports'],
  SystemInfo: ['DockerRootDir', 'MemTotal', 'NCPU', 'RegistryConfig'],
  RegistryServiceConfig: ['InsecureRegistryCIDRs', 'IndexConfigs'],
  SystemVersion: ['ApiVersion', 'Arch', 'MinAPIVersion', 'Version'],
};
/** The same for answers without a schema of their own. */
const ANSWER_FIELDS: Readonly<Record<string, readonly string[]>> = {
  'GET /containers/{id}/json': [
    ...['Config', 'HostConfig', 'Id', 'Image', 'Name', 'NetworkSettings', 'RestartCount', 'State'],
  ],
  'GET /exec/{id}/json': ['ExitCode', 'Running'],
  'GET /system/df': ['BuildCache', 'Images', 'LayersSize'],
};

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null;

/** Leaves out texts and limits: only the shape is of use. Rewrites references for OpenAPI 3. */
function shapeOf(value: unknown, isMap = false): unknown {
  if (Array.isArray(value)) return value.map((item) => shapeOf(item));
  if (typeof value === 'string') return value.replace('#/definitions/', '#/components/schemas/');
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) => {
      if (isMap) return [[key, shapeOf(inner)]];
      if (key === 'x-nullable') return [['nullable', inner]];
      if (/^(description|example|examples|title|default|format|minimum|maximum|x-.*)$/.test(key))
        return [];
      return [[key, shapeOf(inner, key === 'properties')]];
    }),
  );
}

type Parameter = { name: string; in: string; required?: boolean; schema?: unknown; type?: string };

/** Leaves out the other properties of a schema, also within the parts of which it is composed. */
function keepFields(schema: unknown, fields: readonly string[]): void {
  if (!isObject(schema)) return;
  for (const part of (schema['allOf'] ?? []) as unknown[]) keepFields(part, fields);
  const { properties } = schema;
  if (!isObject(properties)) return;
  for (const name of Object.keys(properties)) if (!fields.includes(name)) delete properties[name];
  if (Array.isArray(schema['required']))
    schema['required'] = schema['required'].filter((name) => fields.includes(name as string));
}

const object = (properties: Json): Json => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
});

const queryOf = (parameters: readonly Parameter[]): Json => ({
  type: 'object',
  properties: Object.fromEntries(parameters.map(({ name, type }) => [name, { type }])),
});

/** Describes an operation as one schema: its query, its body and the answer of a success. */
function schemaOf(operation: Json): Json {
  const parameters = (operation['parameters'] ?? []) as Parameter[];
  const query = parameters.filter((parameter) => parameter.in === 'query');
  const body = parameters.find((parameter) => parameter.in === 'body');
  const success = Object.entries(operation['responses'] as Record<string, Json>).find(
    ([status, { schema }]) => status.startsWith('2') && isObject(schema),
  );
  return object({
    ...defined({
      query: query.length === 0 ? undefined : queryOf(query),
      body: body && shapeOf(body.schema),
      answer: success && shapeOf(success[1]['schema']),
    }),
  });
}

/** Returns the schemas to which `value` leads, directly or through other schemas. */
function reachable(value: unknown, schemas: Json, names = new Set<string>()): Set<string> {
  if (typeof value === 'string') {
    const name = /^#\/components\/schemas\/(.+)$/.exec(value)?.[1];
    if (name !== undefined && !names.has(name)) reachable(schemas[name], schemas, names.add(name));
  } else if (isObject(value))
    for (const inner of Object.values(value)) reachable(inner, schemas, names);
  return names;
}

/** `text`: the document in YAML. */
export async function engineApiTypes(text: string): Promise<string> {
  const document = parse(text) as Swagger;
  const schemas = shapeOf(document.definitions, true) as Json;
  const operations = operationsOf(document);
  for (const [name, fields] of Object.entries(FIELDS)) keepFields(schemas[name], fields);
  for (const [name, fields] of Object.entries(ANSWER_FIELDS))
    keepFields((operations[name] as { properties: Json }).properties['answer'], fields);
  const used = reachable(operations, schemas);
  const usedSchemas = Object.entries(schemas).filter(([name]) => used.has(name));
  const types = await openapiTS({
    openapi: '3.0.3',
    info: { title: 'Docker Engine API', version: '1.41' },
    paths: {},
    components: { schemas: { ...operations, ...Object.fromEntries(usedSchemas) } },
  } as unknown as OpenAPI3);
  // Without paths, only the schemas are of use.
  const [, body = ''] =
    /export interface components \{\n\s+schemas: (\{.*?\n {4}\});/s.exec(astToString(types)) ?? [];
  return `${HEADER}export interface EngineApi ${body.replaceAll('components["schemas"]', 'EngineApi')}\n`;
}

type Swagger = { definitions: Json; paths: Record<string, Record<string, Json>> };

function operationsOf(document: Swagger): Json {
  const operations: Json = {};
  for (const [method, path] of OPERATIONS) {
    const raw = document.paths[path]?.[method];
    if (raw === undefined) throw new Error(`the document has no ${method} ${path}`);
    operations[`${method.toUpperCase()} ${path}`] = schemaOf(raw);
  }
  return operations;
}
