/**
 * Makes the smallest value that a schema of wire/ accepts, for answers of the mock that no page
 * looks at closely.
 */
import type { TSchema } from 'typebox';

type Schema = {
  type?: string;
  enum?: readonly unknown[];
  const?: unknown;
  anyOf?: readonly Schema[];
  properties?: Record<string, Schema>;
  required?: readonly string[];
  items?: Schema;
  minItems?: number;
  minimum?: number;
  exclusiveMinimum?: number;
  minLength?: number;
  pattern?: string;
  format?: string;
};

const TEXTS = [
  'sample',
  'sample-1',
  'SAMPLE',
  '/sample',
  'a'.repeat(40),
  `sha256:${'0'.repeat(64)}`,
  '0'.repeat(64),
  'a',
  '2026-01-01T00:00:00Z',
];

/**
 * Optional fields are left out, `T | null` is null, lists are as short as allowed. Throws for a
 * pattern that it does not know.
 */
export const sample = (schema: TSchema): unknown => valueOf(schema);

function valueOf(schema: Schema): unknown {
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined) return schema.enum[0];
  if (schema.anyOf !== undefined)
    return schema.anyOf.some(({ type }) => type === 'null') ? null : valueOf(schema.anyOf[0] ?? {});
  switch (schema.type) {
    case 'object':
      return Object.fromEntries(
        (schema.required ?? []).map((name) => [name, valueOf(schema.properties?.[name] ?? {})]),
      );
    case 'array':
      return Array.from({ length: schema.minItems ?? 0 }, () => valueOf(schema.items ?? {}));
    case 'integer':
    case 'number':
      return (
        schema.minimum ?? (schema.exclusiveMinimum === undefined ? 0 : schema.exclusiveMinimum + 1)
      );
    case 'boolean':
      return false;
    case 'string':
      return textOf(schema);
    default:
      return null;
  }
}

function textOf({ format, pattern, minLength = 0 }: Schema): string {
  if (format === 'date-time') return new Date().toISOString();
  if (pattern === undefined) return 'sample'.padEnd(minLength, 'x');
  const found = TEXTS.find((text) => text.length >= minLength && new RegExp(pattern).test(text));
  if (found === undefined) throw new Error(`no sample text for the pattern ${pattern}`);
  return found;
}
