/**
 * Validates requests by JSON Schema with ajv. Bodies are validated strictly: no field is dropped
 * and no type is converted. Values in query strings and paths are text, so they are converted to
 * the type of the schema. Converts errors to texts for people.
 */
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import formats from 'ajv-formats';
import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { fieldName, pointerParts, ruleText, VARIABLE_NAME } from '@berth/wire/field-rules';
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

function describe(error: ErrorObject, part: string): FieldProblem {
  const field = fieldName(pointerParts(error.instancePath));
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
        ? { field: name, ...VARIABLE_NAME }
        : {
            field: name,
            rule: 'unknown_field',
            message:
              part === 'querystring'
                ? 'is not a query parameter of this request'
                : 'is not a field of this request',
          };
    }
    default:
      return { field: fieldOrPart, ...ruleText(error) };
  }
}

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
