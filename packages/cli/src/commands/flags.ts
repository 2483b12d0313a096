/**
 * Makes options from the schema of a body or query, so that a new field of the API becomes an
 * option without further code.
 */
import { parseBytes } from '../output/units.ts';
import { usage } from '../problem.ts';
import type { Option, Options } from './command.ts';

/** The part of JSON Schema that the route table uses. */
type Schema = {
  type?: string;
  enum?: readonly string[];
  anyOf?: readonly Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  patternProperties?: Record<string, Schema>;
  additionalProperties?: unknown;
  description?: string;
};
type Field = { name: string; option: Option; read: (given: unknown) => unknown };

const NONE = 'none';
const kebab = (name: string): string => name.replaceAll('_', '-');
const camel = (name: string): string =>
  name.replaceAll(/[_-]([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

/**
 * Returns options for the properties of `schema` except `leaveOut`, and a function that builds the
 * body from the options that were given.
 */
export function flagsOf(
  schema: unknown,
  {
    leaveOut = [],
    docs = {},
  }: { leaveOut?: readonly string[]; docs?: Record<string, string> } = {},
): { options: Option[]; read(given: Options): Record<string, unknown> } {
  const fields = Object.entries((schema as Schema).properties ?? {})
    .filter(([name]) => !leaveOut.includes(name))
    .flatMap(([name, field]) => fieldOf(name, field, docs[name] ?? docs['*']));
  return {
    options: fields.map((field) => field.option),
    read: (given) =>
      Object.fromEntries(
        fields.flatMap(({ name, read }) => {
          const value = given[camel(name)];
          return value === undefined ? [] : [[name, read(value)]];
        }),
      ),
  };
}

function fieldOf(name: string, field: Schema, said: string | undefined): Field[] {
  const branches = field.anyOf ?? [field];
  const schema = branches.find((s) => s.type !== 'null') ?? field;
  const nullable = branches.some((s) => s.type === 'null');
  const flag = `--${kebab(name)}`;
  const doc = said ?? schema.description ?? field.description ?? kebab(name).replaceAll('-', ' ');
  const make = (
    value: string,
    read: (text: string) => unknown,
    more: Partial<Option> = {},
  ): Field[] => [
    {
      name,
      option: {
        flags: `${flag} <${value}>`,
        doc: nullable ? `${doc}; “${NONE}” removes it` : doc,
        ...more,
      },
      read: (text) => (nullable && text === NONE ? null : read(String(text))),
    },
  ];
  if (schema.enum !== undefined)
    return make(kebab(name), (text) => text, nullable ? {} : { choices: schema.enum });
  if (schema.type === 'boolean')
    return [
      { name, option: { flags: `${flag} [yes|no]`, doc, parse: yesOrNo }, read: (value) => value },
    ];
  if (schema.type === 'string') return make('text', (text) => text);
  if (schema.type === 'integer' || schema.type === 'number')
    return name.endsWith('_bytes') || name === 'bytes'
      ? make('size', (text) =>
          numberOf(flag, parseBytes(text) ?? Number.NaN, 'a size such as 512MiB'),
        )
      : make('number', (text) =>
          numberOf(flag, text.trim() === '' ? Number.NaN : Number(text), 'a number'),
        );
  if (schema.type === 'array' && schema.items?.type === 'string')
    return [
      {
        name,
        option: {
          flags: `${flag} <text>`,
          doc: `${doc}; may be repeated; “${NONE}” for an empty list`,
          repeats: true,
        },
        read: listOf,
      },
    ];
  if (schema.type === 'object' && schema.properties === undefined)
    return [
      {
        name,
        option: { flags: `${flag} <NAME=value>`, doc: `${doc}; may be repeated`, repeats: true },
        read: (pairs) => pairsOf(flag, pairs),
      },
    ];
  // A list of objects gets its own option (project.ts: --dataset).
  return [];
}

function yesOrNo(text: string): boolean {
  if (['yes', 'true', 'on'].includes(text)) return true;
  if (['no', 'false', 'off'].includes(text)) return false;
  throw new Error('must be yes or no');
}

function numberOf(flag: string, value: number, what: string): number {
  if (Number.isFinite(value)) return value;
  throw usage(`${flag} must be ${what}`);
}

const listOf = (given: unknown): string[] => (given as string[]).filter((text) => text !== NONE);

function pairsOf(flag: string, given: unknown): Record<string, string> {
  return Object.fromEntries(
    (given as string[]).map((pair) => {
      const at = pair.indexOf('=');
      if (at < 1) throw usage(`${flag} must have the form NAME=value, not “${pair}”`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}
