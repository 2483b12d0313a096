/**
 * Converts the schemas of wire/ to OpenAPI 3.1. An exported object schema becomes a named
 * component, `null` becomes one of several types, and a map becomes `additionalProperties`.
 */
import { defined } from '@berth/kit/defined';
import * as access from '@berth/wire/access';
import * as audit from '@berth/wire/audit';
import * as dataset from '@berth/wire/dataset';
import * as deployment from '@berth/wire/deployment';
import * as errors from '@berth/wire/errors';
import * as gateway from '@berth/wire/gateway';
import * as node from '@berth/wire/node';
import * as project from '@berth/wire/project';
import * as token from '@berth/wire/token';
import * as user from '@berth/wire/user';

export type Schema = { [key: string]: unknown };

const MODULES = [access, audit, dataset, deployment, errors, gateway, node, project, token, user];

/** Names by JSON text: composed schemas can contain copies, so object identity is not enough. */
const NAMES = new Map<string, string>(
  MODULES.flatMap((module) => Object.entries(module as Record<string, unknown>))
    .filter(([name, value]) => /^[A-Z][a-z]/.test(name) && isObjectSchema(value))
    .map(([name, value]) => [JSON.stringify(value), name]),
);

function isObjectSchema(value: unknown): value is Schema {
  return (
    typeof value === 'object' &&
    value !== null &&
    'type' in value &&
    value.type === 'object' &&
    'properties' in value
  );
}

export type Components = Record<string, Schema>;

/**
 * Returns the schema for the document. Adds named parts to `components` and replaces them by
 * references.
 */
export function toOpenapi(schema: object, components: Components): Schema {
  const name = nameOf(schema);
  if (name === null) return inline(schema as Schema, components);
  if (components[name] === undefined) {
    // Set the name before the recursion, so that a recursive schema ends.
    components[name] = {};
    components[name] = inline(schema as Schema, components);
  }
  return { $ref: `#/components/schemas/${name}` };
}

/** Returns the exported name, or `ProjectList` for a page of `Project`. */
function nameOf(schema: object): string | null {
  const exportedName = NAMES.get(JSON.stringify(schema));
  if (exportedName !== undefined) return exportedName;
  const { properties } = schema as {
    properties?: { items?: { items?: object }; next_cursor?: object };
  };
  if (properties?.next_cursor === undefined || properties.items?.items === undefined) return null;
  const item = NAMES.get(JSON.stringify(properties.items.items));
  return item === undefined ? null : `${item}List`;
}

function inline(schema: Schema, components: Components): Schema {
  const union = schema['anyOf'];
  if (Array.isArray(union)) return unionOf(schema, union as Schema[], components);
  const { patternProperties, properties, items, additionalProperties, ...rest } = schema;
  return {
    ...rest,
    ...defined({
      properties:
        properties === undefined
          ? undefined
          : mapValues(properties as Record<string, Schema>, (s) => toOpenapi(s, components)),
      items: items === undefined ? undefined : toOpenapi(items as Schema, components),
    }),
    ...(patternProperties === undefined
      ? defined({ additionalProperties })
      : mapOf(patternProperties as Record<string, Schema>, components)),
  };
}

const ANY_NAME = '^.*$';
function mapOf(patterns: Record<string, Schema>, components: Components): Schema {
  const [[pattern, value] = [ANY_NAME, {}]] = Object.entries(patterns);
  return {
    additionalProperties: toOpenapi(value, components),
    ...defined({ propertyNames: pattern === ANY_NAME ? undefined : { pattern } }),
  };
}

/**
 * Converts a union. OpenAPI 3.1 has no `nullable`: with one inline type, `null` is added to its
 * `type` list; otherwise it is one more branch.
 */
function unionOf(schema: Schema, branches: Schema[], components: Components): Schema {
  const { anyOf: _, ...rest } = schema;
  const others = branches.filter((b) => b['type'] !== 'null').map((b) => toOpenapi(b, components));
  const [only] = others;
  if (others.length === branches.length) return { ...rest, anyOf: others };
  if (others.length > 1 || only === undefined || typeof only['type'] !== 'string')
    return { ...rest, anyOf: [...others, { type: 'null' }] };
  const values = only['enum'];
  return {
    ...rest,
    ...only,
    type: [only['type'], 'null'],
    ...defined({ enum: Array.isArray(values) ? [...(values as unknown[]), null] : undefined }),
  };
}

const mapValues = <T, U>(map: Record<string, T>, of: (value: T) => U): Record<string, U> =>
  Object.fromEntries(Object.entries(map).map(([key, value]) => [key, of(value)]));
