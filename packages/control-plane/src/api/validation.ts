/**
 * Validates requests by JSON Schema with ajv. Bodies are validated strictly: no field is dropped
 * and no type is converted. Values in query strings and paths are text, so they are converted to
 * the type of the schema. Converts errors to texts for people.
 */
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import formats from 'ajv-formats';
import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import type { FieldProblem } from '../domain/platform/errors.ts';

const COMMON = {
  removeAdditional: false,
  allErrors: true,
  useDefaults: true,
  verbose: true,
} as const;

// One instance of each for the process: ajv caches compiled schemas, so a second server with the
// same schemas starts quickly.
const strict = formats.default(new Ajv({ ...COMMON, coerceTypes: false }));
const coercing = formats.default(new Ajv({ ...COMMON, coerceTypes: true }));

export const compileValidator: FastifySchemaCompiler<TSchema> = ({ schema, httpPart }) => {
  if (httpPart === 'body') return strict.compile(schema);
  return httpPart === 'querystring'
    ? withPlainNumbers(schema, coercing.compile(schema))
    : coercing.compile(schema);
};

const NUMERALS: Record<string, RegExp> = { integer: /^-?\d+$/, number: /^-?\d+(\.\d+)?$/ };

/**
 * Refuses query numbers that are not plain decimal numerals. Coercion alone accepts `0x10`, `1e2`
 * and spaces.
 */
function withPlainNumbers(schema: TSchema, validate: ValidateFunction): ValidateFunction {
  const fields = Object.entries(
    (schema as { properties?: Record<string, { type?: string }> }).properties ?? {},
  ).flatMap(([name, { type }]) =>
    type !== undefined && NUMERALS[type] !== undefined
      ? [{ name, type, numeral: NUMERALS[type] }]
      : [],
  );
  if (fields.length === 0) return validate;
  const check = ((query: Record<string, unknown>): boolean => {
    const wrong = fields.filter(
      ({ name, numeral }) => typeof query[name] === 'string' && !numeral.test(query[name]),
    );
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

/**
 * Maximum number of errors to read. A body of 1 MiB can have 100,000 errors, and an answer contains
 * at most 100.
 */
const MAX_ERRORS_READ = 400;

/** Returns one problem for each field and rule, in ajv's order. */
export function fieldProblems(errors: readonly ErrorObject[], part: string): FieldProblem[] {
  const byFieldAndRule = new Map<string, FieldProblem>();
  for (const error of withoutBranches(errors.slice(0, MAX_ERRORS_READ))) {
    const problem = describe(error, part);
    const key = JSON.stringify([problem.field, problem.rule]);
    if (!byFieldAndRule.has(key)) byFieldAndRule.set(key, problem);
  }
  return [...byFieldAndRule.values()];
}

/**
 * Removes misleading errors of an `anyOf`. For `null | string` and the value 5, ajv returns three
 * errors: not null, no string, no branch fits. This keeps the errors of the branch with the type of
 * the value. If no branch has that type, it returns one `type` error that names all types.
 */
function withoutBranches(errors: readonly ErrorObject[]): ErrorObject[] {
  const unions = errors.filter((e) => e.keyword === 'anyOf');
  if (unions.length === 0) return [...errors];
  return errors.flatMap((e): ErrorObject[] => {
    const union = unions.find(
      (u) =>
        u !== e && u.instancePath === e.instancePath && e.schemaPath.startsWith(`${u.schemaPath}/`),
    );
    if (union !== undefined && e.keyword === 'type') return [];
    if (e.keyword !== 'anyOf') return [e];
    const inner = errors.filter((o) => o !== e && o.schemaPath.startsWith(`${e.schemaPath}/`));
    if (inner.some((o) => o.keyword !== 'type' || o.instancePath !== e.instancePath)) return [];
    return [
      { ...e, keyword: 'type', params: { type: inner.map((o) => String(o.params['type'])) } },
    ];
  });
}

const PATTERNS: Record<string, { rule: string; message: string }> = {
  '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$': {
    rule: 'dns_label',
    message:
      'must be a DNS label: lower-case letters, digits and dashes, beginning and ending with a ' +
      'letter or digit',
  },
  '^([0-9a-f]{40}|[0-9a-f]{64})$': {
    rule: 'commit_id',
    message: 'must be a full commit id: 40 (or 64) lower-case hexadecimal digits',
  },
  '^sha256:[0-9a-f]{64}$': {
    rule: 'digest',
    message: 'must be “sha256:” and 64 lower-case hexadecimal digits',
  },
  '^[A-Za-z0-9_-]+$': { rule: 'id', message: 'is not an id: letters, digits, “_” and “-” only' },
  '^[^@\\s]+@[^@\\s]+$': { rule: 'email', message: 'must be an e-mail address' },
  '^/[!-~]*$': { rule: 'path', message: 'must begin with “/” and contain no spaces' },
  '^/': { rule: 'absolute', message: 'must begin with “/”' },
};

const FORMATS: Record<string, string> = {
  'date-time': 'must be a time in RFC 3339 format, such as 2026-01-31T12:00:00Z',
};

function describe(error: ErrorObject, part: string): FieldProblem {
  const field = fieldName(error.instancePath);
  const childField = (name: string): string => (field === '' ? name : `${field}.${name}`);
  const params = error.params as Record<string, unknown>;
  const fieldOrPart = field === '' ? part : field;
  switch (error.keyword) {
    case 'required':
      return {
        field: childField(String(params['missingProperty'])),
        rule: 'required',
        message: 'is missing',
      };
    case 'additionalProperties': {
      const name = childField(String(params['additionalProperty']));
      const isMap =
        (error.parentSchema as { patternProperties?: unknown } | undefined)?.patternProperties !==
        undefined;
      return isMap
        ? {
            field: name,
            rule: 'env_name',
            message:
              'is not a valid name of a variable: use letters, digits and “_”, and do not ' +
              'begin with a digit',
          }
        : {
            field: name,
            rule: 'unknown_field',
            message:
              part === 'querystring'
                ? 'is not a query parameter of this request'
                : 'is not a field of this request',
          };
    }
    case 'type':
      return { field: fieldOrPart, rule: 'type', message: `must be ${typeNames(params['type'])}` };
    case 'enum':
      return {
        field: fieldOrPart,
        rule: 'enum',
        message: `must be one of ${(params['allowedValues'] as unknown[]).join(', ')}`,
      };
    case 'pattern':
      return {
        field: fieldOrPart,
        ...(PATTERNS[String(params['pattern'])] ?? {
          rule: 'pattern',
          message: `must match ${String(params['pattern'])}`,
        }),
      };
    case 'format':
      return {
        field: fieldOrPart,
        rule: String(params['format']),
        message:
          FORMATS[String(params['format'])] ?? `must have the format ${String(params['format'])}`,
      };
    case 'minLength':
      return {
        field: fieldOrPart,
        rule: 'min_length',
        message:
          params['limit'] === 1
            ? 'must not be empty'
            : `must have at least ${String(params['limit'])} characters`,
      };
    case 'maxLength':
      return {
        field: fieldOrPart,
        rule: 'max_length',
        message: `must not have more than ${String(params['limit'])} characters`,
      };
    case 'minimum':
      return {
        field: fieldOrPart,
        rule: 'minimum',
        message: `must be at least ${String(params['limit'])}`,
      };
    case 'maximum':
      return {
        field: fieldOrPart,
        rule: 'maximum',
        message: `must be at most ${String(params['limit'])}`,
      };
    case 'minProperties':
      return {
        field: fieldOrPart,
        rule: 'min_properties',
        message: 'must name at least one field',
      };
    case 'maxProperties':
      return {
        field: fieldOrPart,
        rule: 'max_properties',
        message: `must not have more than ${String(params['limit'])} entries`,
      };
    case 'minItems':
      return {
        field: fieldOrPart,
        rule: 'min_items',
        message: `must have at least ${String(params['limit'])} entries`,
      };
    case 'maxItems':
      return {
        field: fieldOrPart,
        rule: 'max_items',
        message: `must not have more than ${String(params['limit'])} entries`,
      };
    default:
      return { field: fieldOrPart, rule: error.keyword, message: error.message ?? 'is not valid' };
  }
}

/**
 * Converts a JSON pointer (RFC 6901) to a field name: `/datasets/0/mount_path` ->
 * `datasets[0].mount_path`.
 */
function fieldName(pointer: string): string {
  return pointer
    .split('/')
    .slice(1)
    .map((s) => s.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((name, s) => {
      if (/^\d+$/.test(s)) return `${name}[${s}]`;
      return name === '' ? s : `${name}.${s}`;
    }, '');
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
const typeNames = (type: unknown): string =>
  (Array.isArray(type) ? type : [type]).map((t) => TYPES[String(t)] ?? String(t)).join(' or ');

/**
 * Finds NUL characters in text from a person. PostgreSQL cannot store them, and no program accepts
 * them in an argument.
 */
export function nulProblems(value: unknown, field = ''): FieldProblem[] {
  if (typeof value === 'string')
    return value.includes('\u0000')
      ? [
          {
            field: field === '' ? 'body' : field,
            rule: 'no_nul',
            message: 'must not contain a NUL character',
          },
        ]
      : [];
  if (Array.isArray(value)) return value.flatMap((v, i) => nulProblems(v, `${field}[${i}]`));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([k, v]) =>
    nulProblems(v, field === '' ? k : `${field}.${k}`),
  );
}
