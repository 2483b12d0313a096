/**
 * The project fields that people can set, from the API schema: a new field gets a control in the
 * settings without further code. This file adds the labels.
 */
import { defined } from '@berth/kit/defined';
import { ProjectPatch } from '@berth/wire/project';
import type { Project } from '@berth/wire/project';
import { type Words, WORDS, wordsOf } from './field-words.ts';

/** Fields that another tab changes. */
export const ELSEWHERE = {
  env: 'env',
  datasets: 'data',
  volumes: 'data',
  members: 'members',
  domains: 'domains',
  processes: 'deployments',
} as const;
type Elsewhere = keyof typeof ELSEWHERE;
export type FormField = Exclude<keyof ProjectPatch, Elsewhere>;
export type Draft = Pick<Project, FormField>;

type Schema = {
  type?: string;
  anyOf?: readonly Schema[];
  enum?: readonly string[];
  const?: unknown;
  items?: Schema;
  minimum?: number;
  maximum?: number;
  description?: string;
  properties?: object;
  patternProperties?: object;
};
export type Kind = 'text' | 'number' | 'switch' | 'choice' | 'list' | 'pairs' | 'requires';
export type FieldOfForm = Words & {
  name: FormField;
  kind: Kind;
  nullable: boolean;
  options: readonly string[];
  min?: number;
  max?: number;
};

function kindOf(schema: Schema, options: readonly string[]): Kind {
  if (options.length > 0) return 'choice';
  if (schema.type === 'boolean') return 'switch';
  if (schema.type === 'integer' || schema.type === 'number') return 'number';
  if (schema.type === 'array') return 'list';
  if (schema.type === 'object') return schema.properties === undefined ? 'pairs' : 'requires';
  return 'text';
}

function fieldOf(name: FormField, whole: Schema): FieldOfForm {
  const parts = whole.anyOf ?? [whole];
  const nullable = parts.some(({ type }) => type === 'null');
  const literal = parts.flatMap((part) =>
    typeof part.const === 'string' ? [part.const] : (part.enum ?? []),
  );
  const schema = parts.find(({ type }) => type !== 'null') ?? whole;
  const words = WORDS[name] ?? {
    label: wordsOf(name),
    ...defined({ help: whole.description }),
  };
  const { minimum: min, maximum: max } = schema;
  return {
    ...words,
    name,
    kind: kindOf(schema, literal),
    nullable,
    options: literal,
    ...defined({ min, max }),
  };
}

const properties = ProjectPatch.properties as unknown as Record<string, Schema>;
const ORDER: readonly string[] = Object.keys(WORDS);
const placeOf = (name: string): number =>
  ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length;

/** The controls of the settings in the order of the form; fields without a label are last. */
export const FORM: readonly FieldOfForm[] = Object.keys(properties)
  .filter((name) => !Object.hasOwn(ELSEWHERE, name))
  .toSorted((a, b) => placeOf(a) - placeOf(b))
  .map((name) => fieldOf(name as FormField, properties[name] ?? {}));

export const draftOf = (project: Project): Draft =>
  Object.fromEntries(FORM.map(({ name }) => [name, project[name]])) as Draft;
export const isEqual = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

/** Returns the changes to send. `build_args` is a merge patch: null removes a name. */
export function patchOf(
  changed: readonly FormField[],
  draft: Draft,
  before: Draft,
): Record<string, unknown> {
  const gone = Object.keys(before.build_args ?? {}).filter(
    (name) => !Object.hasOwn(draft.build_args ?? {}, name),
  );
  const args = { ...draft.build_args, ...Object.fromEntries(gone.map((name) => [name, null])) };
  return Object.fromEntries(
    changed.map((name) => [name, name === 'build_args' ? args : draft[name]]),
  );
}

export const pairsText = (pairs: Readonly<Record<string, string>>): string =>
  Object.entries(pairs)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n');
export const pairsOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split('\n')
      .filter((line) => line.trim() !== '')
      .map((line) => {
        const [name = '', ...value] = line.split('=');
        return [name.trim(), value.join('=')];
      }),
  );
/** Returns whether all values fit into the control, which has one line per value. */
export const fitsLines = (pairs: Readonly<Record<string, string>>): boolean =>
  Object.values(pairs).every((value) => !value.includes('\n'));
