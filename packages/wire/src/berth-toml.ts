/**
 * The file `berth.toml` of a repository (docs/berth-toml.md). Its keys are fields of the project,
 * with the schemas of the API.
 */
import { defined } from '@berth/kit/defined';
import { parse, stringify, TomlDate, TomlError } from 'smol-toml';
import { type Static, type TSchema, Type } from 'typebox';
import { Errors } from 'typebox/value';
import { buildArgProblems } from './build-arg-rules.ts';
import {
  type BrokenRule,
  fieldName,
  pointerParts,
  ruleText,
  VARIABLE_NAME,
} from './field-rules.ts';
import { JOB_DEFAULTS, JOB_FIELDS, JobName, MAX_JOBS } from './job.ts';
import { Requires } from './machine.ts';
import { Command } from './run-payload.ts';
import { healthPathProblem, repoPathProblem, watchPathProblem } from './path-rules.ts';
import {
  BuildArgs,
  BuildTarget,
  Cpus,
  DrainSeconds,
  Env,
  HealthPath,
  MemoryBytes,
  Port,
  Process,
  PROCESS_FIELDS,
  ProcessName,
  RepoPath,
  SettleSeconds,
  StopGraceSeconds,
  WatchPath,
  WEB,
} from './project.ts';
import { scheduleOf } from './schedule.ts';
import { type FindLine, linesIn } from './toml-lines.ts';

export const BERTH_TOML = 'berth.toml';

const strict = { additionalProperties: false } as const;

const build = {
  dockerfile_path: RepoPath,
  build_target: BuildTarget,
  build_args: BuildArgs,
  watch_paths: Type.Array(WatchPath, { maxItems: 50 }),
};
/** A process in the file; its name is that of its table. */
const FileProcess = Type.Object(Type.Partial(Type.Object(PROCESS_FIELDS)).properties, {
  ...strict,
  description: 'a process of the project; `count` is the first value only',
});
const MAX_PROCESSES = 20;
/** A job in the file; its name is that of its table. */
const FileJobTable = Type.Object(JOB_FIELDS, {
  ...strict,
  description: 'a command that runs by a schedule',
});
/** A job of a release. */
export type FileJob = Static<typeof FileJobTable> & { name: string };
/** Keys at the top of the file. A new setting is one line here, and one in FILE_SETTINGS. */
const plain = {
  container_port: Port,
  health_path: HealthPath,
  release_command: Command,
  memory_bytes: MemoryBytes,
  cpus: Cpus,
  requires: Requires,
  drain_seconds: DrainSeconds,
  stop_grace_seconds: StopGraceSeconds,
  settle_seconds: SettleSeconds,
  env: Env,
};
export const BerthToml = Type.Object(
  {
    ...Type.Partial(Type.Object(plain)).properties,
    build: Type.Optional(
      Type.Object(Type.Partial(Type.Object(build)).properties, {
        ...strict,
        description: 'how the image is built',
      }),
    ),
    processes: Type.Optional(
      Type.Record(ProcessName, FileProcess, {
        ...strict,
        maxProperties: MAX_PROCESSES,
        description: 'the ways to start the image, by name',
      }),
    ),
    jobs: Type.Optional(
      Type.Record(JobName, FileJobTable, {
        ...strict,
        maxProperties: MAX_JOBS,
        description: 'commands that run by a schedule, by name',
      }),
    ),
  },
  { ...strict, title: 'berth.toml', description: 'settings of a Berth project in its repository' },
);
export type BerthToml = Static<typeof BerthToml>;

/** Fields of the project that a file can set. */
const FILE_SETTINGS = Type.Partial(
  Type.Object({ ...plain, ...build, processes: Type.Array(Process) }),
);
export type FileSettings = Static<typeof FILE_SETTINGS> & { jobs?: FileJob[] };
const BUILD_FIELDS = Object.keys(build);

/** Returns the key in the file for a field of the project: `build.build_target`, `env.A`. */
const fileKey = (field: string): string =>
  BUILD_FIELDS.includes(/^\w+/.exec(field)?.[0] ?? '') ? `build.${field}` : field;

export type ConfigProblem = {
  /** Null: the parser does not say the line. */
  line: number | null;
  key: string;
  rule: string;
  message: string;
};

export type ParsedToml =
  | {
      settings: FileSettings;
      /** Fields that the file sets; one for each variable: `env.LOG_LEVEL`. */
      keys: string[];
    }
  | { problems: ConfigProblem[] };

/** Settings that a commit must not change. */
const ONLY_IN_PROJECT = [
  'name',
  'git_url',
  'branch',
  'domain_prefix',
  'domains',
  'auth_required',
  'members',
  'cors_origins',
  'datasets',
  'volumes',
  'secrets',
  'allow_exec',
  'exec_role',
];

/** A file of 64 KiB can have thousands of mistakes. */
const MAX_PROBLEMS = 100;

/** Reads the text of a file. The rules that need the project are the control plane's. */
export function parseBerthToml(text: string): ParsedToml {
  let document: Record<string, unknown>;
  try {
    document = parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    return { problems: [syntaxProblem(error)] };
  }
  const lineOf = linesIn(text);
  const deep = tooDeep(document);
  if (deep !== null) return { problems: [{ line: lineOf(deep), key: deep[0] ?? '', ...TOO_DEEP }] };
  const ofSchema = schemaProblems(document);
  const dates = dateProblems(document, new Set(ofSchema.map(({ path }) => path.join('.'))));
  const problems = [...ofSchema, ...dates, ...nulProblems(document)]
    .slice(0, MAX_PROBLEMS)
    .map(({ path, ...problem }) => ({ ...problem, line: lineOf(path), key: fieldName(path) }));
  if (problems.length > 0)
    return { problems: problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0)) };
  const { build: ofBuild = {}, processes, jobs, ...top } = document as BerthToml;
  const settings: FileSettings = {
    ...top,
    ...ofBuild,
    ...defined({
      processes: processes === undefined ? undefined : listOfTables(processes),
      jobs: jobs === undefined ? undefined : listOfTables(jobs),
    }),
  };
  const broken = brokenRules(settings).map(({ field, ...problem }) =>
    atKey(lineOf, field, problem),
  );
  if (broken.length > 0) return { problems: broken };
  return { settings, keys: keysOf(settings) };
}

const listOfTables = <T extends object>(tables: Record<string, T>): (T & { name: string })[] =>
  Object.entries(tables).map(([name, fields]) => ({ name, ...fields }));

/** Checks the rules that the schema cannot express and that need nothing but the file. */
const brokenRules = ({
  health_path,
  dockerfile_path,
  build_args = {},
  watch_paths = [],
  jobs = [],
}: FileSettings): BrokenRule[] =>
  [
    health_path === undefined ? null : healthPathProblem(health_path, 'health_path'),
    dockerfile_path === undefined ? null : repoPathProblem(dockerfile_path, 'dockerfile_path'),
    ...buildArgProblems(build_args),
    ...watch_paths.map((path, i) => watchPathProblem(path, `watch_paths[${i}]`)),
    ...jobs.map(jobProblem),
  ].filter((problem) => problem !== null);

function jobProblem({
  name,
  schedule,
  timezone = JOB_DEFAULTS.timezone,
}: FileJob): BrokenRule | null {
  const parsed = scheduleOf(schedule, timezone);
  if ('schedule' in parsed) return null;
  return { ...parsed.problem, field: `jobs.${name}.${parsed.problem.field}` };
}

/** Returns the problem of a field with its key and its line in the file. */
export function atKey(
  lineOf: FindLine,
  field: string,
  problem: Pick<ConfigProblem, 'rule' | 'message'>,
): ConfigProblem {
  const key = fileKey(field);
  const path = key.split(/[.[\]]+/).filter((part) => part !== '');
  return { ...problem, line: lineOf(path), key };
}

const MAPS = ['env', 'build_args'] as const;
const isMap = (field: string): field is (typeof MAPS)[number] =>
  (MAPS as readonly string[]).includes(field);

export const keysOf = (settings: FileSettings): string[] =>
  Object.entries(settings).flatMap(([field, value]) => {
    if (field === 'jobs') return (value as FileJob[]).map(({ name }) => `jobs.${name}`);
    return isMap(field) ? Object.keys(value).map((name) => `${field}.${name}`) : [field];
  });

/** The message of the parser without its excerpt of the file, which can hold a value. */
const syntaxProblem = ({ line, message }: TomlError): ConfigProblem => ({
  line,
  key: '',
  rule: 'syntax',
  message: (message.split('\n')[0] ?? '').replace(/^Invalid TOML document: /, ''),
});

const MAX_DEPTH = 8;
const TOO_DEEP = {
  rule: 'depth',
  message: `has more than ${MAX_DEPTH} tables inside each other`,
};

/**
 * Returns the beginning of a key with too many parts, or null. The checks of a schema are recursive
 * and would need minutes for a key of 64 KiB.
 */
function tooDeep(document: Record<string, unknown>): string[] | null {
  const open: { path: string[]; value: unknown }[] = [{ path: [], value: document }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { path, value } = next;
    if (typeof value !== 'object' || value === null || value instanceof TomlDate) continue;
    if (path.length > MAX_DEPTH) return path;
    for (const [name, inner] of Object.entries(value))
      open.push({ path: [...path, name], value: inner });
  }
  return null;
}

type AtPath = { path: string[]; rule: string; message: string };

function schemaProblems(document: Record<string, unknown>): AtPath[] {
  return Errors(BerthToml, document).flatMap(({ keyword, instancePath, params, message }) => {
    const path = pointerParts(instancePath);
    // typebox lists an unknown key as a key whose schema is `false`, and then again with its table.
    // It stops after some errors, so only the first ones are certain.
    if (keyword === 'boolean')
      return [{ path, ...unknownKey(path.slice(0, -1), path.at(-1) ?? '') }];
    if (keyword === 'additionalProperties') return [];
    const value = path.reduce<unknown>(
      (at, part) => (at as Record<string, unknown>)[part],
      document,
    );
    if (keyword === 'required')
      return value instanceof TomlDate
        ? []
        : [{ path, rule: 'required', message: missingText(params) }];
    if (value instanceof TomlDate && keyword === 'type')
      return [
        { path, rule: 'type', message: `${ruleText({ keyword, params }).message}, not a date` },
      ];
    return [{ path, ...ruleText({ keyword, params, message }) }];
  });
}

/**
 * A date is an object without properties, so the schema takes it for an empty table: no setting is
 * a date. `reported`: paths that have a problem already.
 */
function dateProblems(
  value: unknown,
  reported: ReadonlySet<string>,
  path: string[] = [],
): AtPath[] {
  if (value instanceof TomlDate)
    return reported.has(path.join('.'))
      ? []
      : [{ path, rule: 'type', message: 'must be an object, not a date' }];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) =>
    dateProblems(inner, reported, [...path, name]),
  );
}

const missingText = (params: object): string =>
  `must have the key ${(params as { requiredProperties: string[] }).requiredProperties.join(' and ')}`;

function unknownKey(table: readonly string[], name: string): { rule: string; message: string } {
  const last = table.at(-1) ?? '';
  if (isMap(last)) return VARIABLE_NAME;
  const rule = 'unknown_key';
  if (last === 'labels' || last === 'devices')
    return { rule, message: `is not a valid name for ${table.join('.')}` };
  if (last === 'processes')
    return {
      rule,
      message:
        'is not a valid name of a process: use lower-case letters, digits and hyphens, at most 20 ' +
        'characters',
    };
  if (last === 'jobs')
    return {
      rule,
      message:
        'is not a valid name of a job: use lower-case letters, digits and hyphens, at most 40 ' +
        'characters',
    };
  if (table.length > 0) return { rule, message: `is not a key of [${table.join('.')}]` };
  if (ONLY_IN_PROJECT.includes(name))
    return {
      rule: 'only_in_project',
      message:
        'cannot be set by a file of the repository, because it decides names, data or rights; ' +
        'set it in the project',
    };
  if (BUILD_FIELDS.includes(name)) return { rule, message: 'belongs to the table [build]' };
  const keys = [...Object.keys(plain), 'processes', 'jobs', 'build'].join(', ');
  return { rule, message: `is not a key of berth.toml; its keys are ${keys}` };
}

/** PostgreSQL cannot store a NUL character, and no program accepts it in an argument. */
function nulProblems(value: unknown, path: string[] = []): AtPath[] {
  if (typeof value === 'string')
    return value.includes('\0')
      ? [{ path, rule: 'no_nul', message: 'must not contain a NUL character' }]
      : [];
  if (typeof value !== 'object' || value === null || value instanceof TomlDate) return [];
  return Object.entries(value).flatMap(([name, inner]) => nulProblems(inner, [...path, name]));
}

/** Returns a problem as text for people: `berth.toml line 3: health_path must …`. */
export const problemText = (
  file: string,
  { line, key, message }: Omit<ConfigProblem, 'rule'>,
): string =>
  `${file}${line === null ? '' : ` line ${line}`}: ${key === '' ? '' : `${key} `}${message}`;

/** Maximum number of problems in one message. */
const SHOWN = 5;

export function problemsText(file: string, problems: readonly ConfigProblem[]): string {
  const texts = problems.slice(0, SHOWN).map((problem) => problemText(file, problem));
  return [...texts, ...(problems.length > SHOWN ? ['and more'] : [])].join('; ');
}

/** Returns the text of a file with these settings. Leaves out what is null or empty. */
export function berthToml(settings: { readonly [K in keyof FileSettings]?: unknown }): string {
  const isSet = (field: string): boolean => {
    const value = settings[field as keyof FileSettings];
    if (value === null || value === undefined) return false;
    return typeof value !== 'object' || Object.keys(value).length > 0;
  };
  const pick = (fields: readonly string[]): Record<string, unknown> =>
    Object.fromEntries(
      fields.filter(isSet).map((field) => [field, settings[field as keyof FileSettings]]),
    );
  const ofBuild = pick(BUILD_FIELDS);
  return stringify({
    ...pick(Object.keys(plain)),
    ...defined({ processes: tablesOf(settings.processes), jobs: jobTables(settings.jobs) }),
    ...defined({ build: Object.keys(ofBuild).length === 0 ? undefined : ofBuild }),
  });
}

/** Returns the tables of the processes, without what is null; undefined if only `web` has nothing. */
function tablesOf(processes: unknown): Record<string, unknown> | undefined {
  if (!Array.isArray(processes)) return undefined;
  const tables = (processes as Process[]).map(({ name, ...fields }): [string, object] => [
    name,
    Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null)),
  ]);
  const isPlain = ([name, fields]: [string, object]): boolean =>
    name === WEB && JSON.stringify(fields) === JSON.stringify({ count: 1 });
  return tables.every(isPlain) ? undefined : Object.fromEntries(tables);
}

/** Returns the tables of the jobs, without defaults; undefined without a job. */
function jobTables(jobs: unknown): Record<string, unknown> | undefined {
  if (!Array.isArray(jobs) || jobs.length === 0) return undefined;
  const defaults: Record<string, unknown> = JOB_DEFAULTS;
  return Object.fromEntries(
    (jobs as FileJob[]).map(({ name, ...fields }) => [
      name,
      Object.fromEntries(
        Object.entries(fields).filter(
          ([field, value]) =>
            Object.hasOwn(JOB_FIELDS, field) &&
            JSON.stringify(value) !== JSON.stringify(defaults[field]),
        ),
      ),
    ]),
  );
}

/** The JSON Schema of the file, for editors. */
export const berthTomlSchema = (address: string): TSchema & Record<string, unknown> => ({
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  $id: address,
  ...(JSON.parse(JSON.stringify(BerthToml)) as TSchema),
});
