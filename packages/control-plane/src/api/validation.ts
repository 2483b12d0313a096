/**
 * Validates requests by JSON Schema with ajv. Bodies are validated strictly: no field is dropped and no type converted. Values in query
 * strings and paths are text, so they are converted to the type of the schema. Errors become texts for people.
 */
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import formats from 'ajv-formats';
import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import type { FieldProblem } from '../domain/errors.ts';

const COMMON = { removeAdditional: false, allErrors: true, useDefaults: true, verbose: true } as const;

// One instance of each per process: ajv caches compiled schemas, so a second server with the same schemas starts quickly.
const strict = formats.default(new Ajv({ ...COMMON, coerceTypes: false }));
const coercing = formats.default(new Ajv({ ...COMMON, coerceTypes: true }));

export const compileValidator: FastifySchemaCompiler<TSchema> = ({ schema, httpPart }) => {
  if (httpPart === 'body') return strict.compile(schema);
  return httpPart === 'querystring' ? withPlainNumbers(schema, coercing.compile(schema)) : coercing.compile(schema);
};

const NUMERALS: Record<string, RegExp> = { integer: /^-?\d+$/, number: /^-?\d+(\.\d+)?$/ };

/** Refuses numbers in a query that are not plain decimal numerals. Coercion alone accepts `0x10`, `1e2` and spaces. */
function withPlainNumbers(schema: TSchema, validate: ValidateFunction): ValidateFunction {
  const fields = Object.entries((schema as { properties?: Record<string, { type?: string }> }).properties ?? {}).flatMap(
    ([name, { type }]) => (type !== undefined && NUMERALS[type] !== undefined ? [{ name, type, numeral: NUMERALS[type] }] : []),
  );
  if (fields.length === 0) return validate;
  const check = ((query: Record<string, unknown>): boolean => {
    const wrong = fields.filter(({ name, numeral }) => typeof query[name] === 'string' && !numeral.test(query[name]));
    check.errors = wrong.map(({ name, type }) => ({
      keyword: 'type',
      instancePath: `/${name}`,
      schemaPath: `#/properties/${name}/type`,
      params: { type },
    }));
    if (wrong.length > 0) return false;
    const isValid = validate(query);
    check.errors = validate.errors ?? null;
    return isValid;
  }) as ValidateFunction;
  return check;
}

/** Number of errors that are read. A body of 1 MiB can have 100,000 errors, and an answer names at most 100. */
const MAX_ERRORS_READ = 400;

/** Returns one problem for each field and rule, in the order in which ajv found them. */
export function fieldProblems(errors: readonly ErrorObject[], part: string): FieldProblem[] {
  const seen = new Map<string, FieldProblem>();
  for (const error of withoutBranches(errors.slice(0, MAX_ERRORS_READ))) {
    const problem = describe(error, part);
    const key = JSON.stringify([problem.field, problem.rule]);
    if (!seen.has(key)) seen.set(key, problem);
  }
  return [...seen.values()];
}

/**
 * Removes misleading errors of an `anyOf`. A value that fits no branch breaks a rule in each branch. Keeps the errors of the branch
 * with the type of the value. If no branch has that type, returns one `type` error that names all types.
 */
function withoutBranches(errors: readonly ErrorObject[]): ErrorObject[] {
  const unions = errors.filter((e) => e.keyword === 'anyOf');
  if (unions.length === 0) return [...errors];
  return errors.flatMap((e): ErrorObject[] => {
    const union = unions.find((u) => u !== e && u.instancePath === e.instancePath && e.schemaPath.startsWith(`${u.schemaPath}/`));
    if (union !== undefined && e.keyword === 'type') return [];
    if (e.keyword !== 'anyOf') return [e];
    const inner = errors.filter((o) => o !== e && o.schemaPath.startsWith(`${e.schemaPath}/`));
    if (inner.some((o) => o.keyword !== 'type' || o.instancePath !== e.instancePath)) return [];
    return [{ ...e, keyword: 'type', params: { type: inner.map((o) => String(o.params['type'])) } }];
  });
}

const PATTERNS: Record<string, { rule: string; message: string }> = {
  '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$': {
    rule: 'dns_label',
    message: 'must be a DNS label: lower-case letters, digits and dashes, beginning and ending with a letter or digit',
  },
  '^([0-9a-f]{40}|[0-9a-f]{64})$': { rule: 'commit_id', message: 'must be a full commit id: 40 (or 64) lower-case hexadecimal digits' },
  '^sha256:[0-9a-f]{64}$': { rule: 'digest', message: 'must be “sha256:” and 64 lower-case hexadecimal digits' },
  '^[A-Za-z0-9_-]+$': { rule: 'id', message: 'is not an id: letters, digits, “_” and “-” only' },
  '^[^@\\s]+@[^@\\s]+$': { rule: 'email', message: 'must be an e-mail address' },
  '^/[!-~]*$': { rule: 'path', message: 'must begin with “/” and contain no spaces' },
  '^/': { rule: 'absolute', message: 'must begin with “/”' },
};

function describe(error: ErrorObject, part: string): FieldProblem {
  const field = fieldName(error.instancePath);
  const at = (name: string): string => (field === '' ? name : `${field}.${name}`);
  const p = error.params as Record<string, unknown>;
  const here = field === '' ? part : field;
  switch (error.keyword) {
    case 'required':
      return { field: at(String(p['missingProperty'])), rule: 'required', message: 'is missing' };
    case 'additionalProperties': {
      const name = at(String(p['additionalProperty']));
      const isMap = (error.parentSchema as { patternProperties?: unknown } | undefined)?.patternProperties !== undefined;
      return isMap
        ? {
            field: name,
            rule: 'env_name',
            message: 'is not a valid name of a variable: use letters, digits and “_”, and do not begin with a digit',
          }
        : {
            field: name,
            rule: 'unknown_field',
            message: part === 'querystring' ? 'is not a query parameter of this request' : 'is not a field of this request',
          };
    }
    case 'type':
      return { field: here, rule: 'type', message: `must be ${typeNames(p['type'])}` };
    case 'enum':
      return { field: here, rule: 'enum', message: `must be one of ${(p['allowedValues'] as unknown[]).join(', ')}` };
    case 'pattern':
      return { field: here, ...(PATTERNS[String(p['pattern'])] ?? { rule: 'pattern', message: `must match ${String(p['pattern'])}` }) };
    case 'format':
      return {
        field: here,
        rule: String(p['format']),
        message:
          p['format'] === 'date-time'
            ? 'must be a time in RFC 3339 format, such as 2026-01-31T12:00:00Z'
            : `must be a ${String(p['format'])}`,
      };
    case 'minLength':
      return {
        field: here,
        rule: 'min_length',
        message: p['limit'] === 1 ? 'must not be empty' : `must have at least ${String(p['limit'])} characters`,
      };
    case 'maxLength':
      return { field: here, rule: 'max_length', message: `must not have more than ${String(p['limit'])} characters` };
    case 'minimum':
      return { field: here, rule: 'minimum', message: `must be at least ${String(p['limit'])}` };
    case 'maximum':
      return { field: here, rule: 'maximum', message: `must be at most ${String(p['limit'])}` };
    case 'minProperties':
      return { field: here, rule: 'min_properties', message: 'must name at least one field' };
    case 'maxProperties':
      return { field: here, rule: 'max_properties', message: `must not have more than ${String(p['limit'])} entries` };
    case 'maxItems':
      return { field: here, rule: 'max_items', message: `must not have more than ${String(p['limit'])} entries` };
    default:
      return { field: here, rule: error.keyword, message: error.message ?? 'is not valid' };
  }
}

/** `/datasets/0/mount_path` -> `datasets[0].mount_path` (JSON pointer, RFC 6901). */
function fieldName(pointer: string): string {
  return pointer
    .split('/')
    .slice(1)
    .map((s) => s.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((name, s) => (/^\d+$/.test(s) ? `${name}[${s}]` : name === '' ? s : `${name}.${s}`), '');
}

const TYPES: Record<string, string> = {
  string: 'text',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  object: 'an object',
  array: 'a list',
  null: 'null',
};
const typeNames = (type: unknown): string => (Array.isArray(type) ? type : [type]).map((t) => TYPES[String(t)] ?? String(t)).join(' or ');

/** Finds NUL characters in the text that a person sent. PostgreSQL cannot store them, and no program takes them as an argument. */
export function nulProblems(value: unknown, field = ''): FieldProblem[] {
  if (typeof value === 'string')
    return value.includes('\u0000')
      ? [{ field: field === '' ? 'body' : field, rule: 'no_nul', message: 'must not contain a NUL character' }]
      : [];
  if (Array.isArray(value)) return value.flatMap((v, i) => nulProblems(v, `${field}[${i}]`));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([k, v]) => nulProblems(v, field === '' ? k : `${field}.${k}`));
}
