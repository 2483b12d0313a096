/**
 * `npm run docs`: writes the generated tables of docs/*.md. Each table is between
 * `<!-- generated: NAME -->` and `<!-- /generated -->`; people write the text around it.
 * test/structure.test.ts compares the tables with the code.
 */
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ERRORS, type FailureCode, FAILURES, NEXT_STEPS } from '@berth/wire/errors';
import type { Route } from '@berth/wire/route';
import { ROUTES } from '@berth/wire/routes';
import { DEPLOYMENT_STATES, isSettled, isTerminal } from '@berth/wire/vocabulary';
import { EXAMPLES } from '../packages/cli/src/commands/examples.ts';
import { ON_THE_MACHINE } from '../bin/launch.mjs';
import { MACHINE_COMMANDS } from '../packages/cli/src/commands/machine.ts';
import { COMMANDS } from '../packages/cli/src/commands/table.ts';
import { openapiDocument } from '../packages/control-plane/src/api/openapi/document.ts';
import { TRANSITIONS } from '../packages/control-plane/src/flow/transitions.ts';
import { answerHelp } from './lib/help.mjs';
import { FAIL_POINTS } from '../test/faults/fail-points/table.ts';

const ROOT = path.resolve(import.meta.dirname, '..');

const escape = (text: string): string =>
  text.replaceAll('|', '\\|').replaceAll('<', '&lt;').replaceAll('\n', ' ');
const code = (text: string): string => `\`${text}\``;
const anchor = (name: string): string => `{#${name}}`;
/** Inserts anchors. Call it after `table` has escaped the cells. */
const anchored = (text: string): string => text.replaceAll(/\{#([a-z_]+)\}/g, '<a id="$1"></a>');
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows]
    .map((row) => `| ${row.map(escape).join(' | ')} |`)
    .join('\n');

function errors(): string {
  // Links to a code lead to these anchors.
  const rows = Object.entries(ERRORS).map(([name, { status, title }]) => [
    `${anchor(name)}${code(name)}`,
    String(status),
    title,
  ]);
  return anchored(table(['code', 'status', 'title'], rows));
}

function failures(): string {
  const rows = (Object.keys(FAILURES) as FailureCode[]).map((name) => [
    code(name),
    FAILURES[name],
    NEXT_STEPS[name],
  ]);
  return table(['code', 'meaning', 'what to do'], rows);
}

function states(): string {
  const leadsTo = (state: string): string =>
    [...new Set(TRANSITIONS.filter((t) => t.from === state).map((t) => code(t.to)))].join(', ') ||
    '–';
  const rows = DEPLOYMENT_STATES.map((state) => [
    code(state),
    isTerminal(state) ? 'terminal' : isSettled(state) ? 'settled' : 'open',
    leadsTo(state),
  ]);
  return table(['state', 'kind', 'leads to'], rows);
}

function transitions(): string {
  const rows = TRANSITIONS.map((t) => [code(t.from), code(t.event), code(t.to), t.when]);
  return table(['from', 'event', 'to', 'when'], rows);
}

/** Returns the lines of test/routes.snapshot.txt: `METHOD path who`. */
export const routeLines = (): string[] =>
  Object.values(ROUTES).map((route: Route) => `${route.method} ${route.path} ${route.who}`);

function routes(): string {
  const rows = Object.values(ROUTES).map((route: Route) => [
    `${route.method} ${code(route.path.replaceAll(/:([a-z_]+)/g, '{$1}'))}`,
    route.who === 'public' ? 'anyone' : route.who,
    String(route.status),
    route.summary,
  ]);
  return table(['method, path', 'who', 'status', 'does'], rows);
}

type Example = { example?: unknown };
type Operation = {
  requestBody?: { content: Record<string, Example> };
  responses: Record<string, { content?: Record<string, Example> }>;
};

/**
 * Returns an example request and answer for each route of people and scripts, with the sample
 * values of the OpenAPI document.
 */
function examples(): string {
  const { paths } = openapiDocument('https://berth.example.com') as {
    paths: Record<string, Record<string, Operation>>;
  };
  return Object.entries(paths)
    .flatMap(([at, methods]) =>
      Object.entries(methods).map(([method, operation]) =>
        exampleOf(method.toUpperCase(), at, operation),
      ),
    )
    .join('\n\n');
}

/** Returns an example of a parameter of a path. */
function valueIn(at: string, name: string): string {
  if (name === 'host') return 'git.example.com';
  if (name === 'name') return at.includes('/secrets/') ? 'API_KEY' : 'API_URL';
  return 'k3v9x2m7q4';
}

function exampleOf(method: string, at: string, { requestBody, responses }: Operation): string {
  const body = requestBody?.content['application/json']?.example;
  const [status, answer] = Object.entries(responses).find(([name]) => name.startsWith('2')) ?? [
    '',
    {},
  ];
  const shown = answer.content?.['application/json']?.example;
  const lines = [
    `${method} ${at.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) => valueIn(at, name))}`,
    ...(body === undefined ? [] : [wrapped(body)]),
    '',
    status,
    ...(shown === undefined ? [] : [wrapped(shown)]),
  ];
  return `### ${method} \`${at}\`\n\n\`\`\`http\n${lines.join('\n')}\n\`\`\``;
}

const LONGEST_LINE = 140;
/**
 * Returns JSON on one line, or on as few lines as fit. `before`: the text before it on its first
 * line.
 */
function wrapped(value: unknown, indent = '', before = ''): string {
  const flat = JSON.stringify(value);
  // One character more for the comma after it.
  if (
    indent.length + before.length + flat.length < LONGEST_LINE ||
    typeof value !== 'object' ||
    value === null
  )
    return before + flat;
  const inner = `${indent}  `;
  const entries = Array.isArray(value)
    ? value.map((item) => wrapped(item, inner))
    : Object.entries(value).map(([key, item]) => wrapped(item, inner, `${JSON.stringify(key)}: `));
  const lines = [''];
  for (const [i, entry] of entries.entries()) {
    const piece = i === entries.length - 1 ? entry : `${entry},`;
    const last = lines.at(-1) ?? '';
    const fits =
      !last.includes('\n') &&
      !piece.includes('\n') &&
      inner.length + last.length + 1 + piece.length <= LONGEST_LINE;
    if (last === '') lines[lines.length - 1] = piece;
    else if (fits) lines[lines.length - 1] = `${last} ${piece}`;
    else lines.push(piece);
  }
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  return [before + open, ...lines.map((line) => inner + line), indent + close].join('\n');
}

type Setting = { doc: string; default?: string; shown?: string; required?: boolean };
const isSettings = (value: unknown): value is Record<string, Setting> =>
  typeof value === 'object' &&
  value !== null &&
  Object.values(value).every(
    (s: unknown) => typeof s === 'object' && s !== null && 'doc' in s && 'parse' in s,
  );

/** Reads the export SETTINGS (or AGENT_SETTINGS and the like) of every package's config.ts. */
async function settings(): Promise<string> {
  const sections: string[] = [];
  for (const file of globSync('packages/*/src/config.ts', { cwd: ROOT }).toSorted()) {
    const name = file.split(path.sep)[1] ?? '';
    // kit holds the settings that all processes share; testbed is no process of Berth.
    if (name === 'kit' || name === 'testbed') continue;
    const module = (await import(path.join(ROOT, file))) as Record<string, unknown>;
    const declared = Object.entries(module).find(([key]) => /(^|_)SETTINGS$/.test(key))?.[1];
    if (!isSettings(declared)) throw new Error(`${file} does not export SETTINGS`);
    const rows = Object.entries(declared).map(([variable, s]) => [
      code(variable),
      s.doc,
      s.required === true
        ? '**must be set**'
        : s.default !== undefined
          ? s.default === ''
            ? 'empty'
            : code(s.default)
          : (s.shown ?? '–'),
    ]);
    sections.push(
      `### \`berth${name === 'cli' ? ' <noun> <verb>' : ` ${name}`}\`\n\n` +
        `${exampleOfSettings(name, declared)}\n\n` +
        table(['variable', 'meaning', 'default'], rows),
    );
  }
  return sections.join('\n\n');
}

/** Settings that people set most often, by process. */
const SETTINGS_EXAMPLES: Readonly<Record<string, readonly [meaning: string, lines: string[]]>> = {
  agent: [
    '`/etc/berth/agent-deploy.env` of a deploy node that keeps 200 GB of datasets',
    [
      'NODE_ROLE=deploy',
      'CONTROL_PLANE_URL=https://berth.apps.example.org',
      'JOIN_TOKEN_FILE=/etc/berth/secrets/agent-deploy/JOIN_TOKEN',
      'MAX_STORAGE=200000000000',
      'NODE_LABELS=zone=a,gpu=true',
    ],
  ],
  cli: [
    'a step of a CI pipeline',
    [
      'export BERTH_URL=https://berth.apps.example.org',
      'export BERTH_TOKEN="$BERTH_TOKEN_OF_CI"',
      'berth deploy shop --commit "$COMMIT"',
    ],
  ],
  'control-plane': [
    '`/etc/berth/control-plane.env` of one of two control planes',
    [
      'BASE_DOMAIN=apps.example.org',
      'REGISTRY_ADDR=registry.apps.example.org',
      'DATABASE_URL=postgres://berth:…@db.example.com/berth',
      'LISTEN=10.0.0.1:8080',
    ],
  ],
  gateway: [
    '`/etc/berth/gateway.env` with an OpenID provider, for the people of one company',
    [
      'CONTROL_PLANE_URL=http://10.0.0.1:8080',
      'BASE_DOMAIN=apps.example.org',
      'OIDC_ISSUER=https://login.example.com',
      'OIDC_CLIENT_ID=berth',
      'ALLOWED_EMAILS=@example.com',
    ],
  ],
  proxy: [
    'the development proxy beside a control plane on the same machine',
    ['LISTEN=127.0.0.1:8000', 'CONFIG_URL=http://127.0.0.1:8080/api/traefik/config'],
  ],
  relay: [
    '`/etc/berth/relay.env` beside Traefik on another machine',
    ['LISTEN=127.0.0.1:8082', 'CONTROL_PLANE_URL=http://10.0.0.1:8080'],
  ],
};

/** @throws if the example names a variable that the process does not have */
function exampleOfSettings(name: string, declared: Record<string, Setting>): string {
  const example = SETTINGS_EXAMPLES[name];
  if (example === undefined) throw new Error(`scripts/docs.ts has no example for ${name}`);
  const [meaning, lines] = example;
  for (const line of lines) {
    const variable = /^(?:export )?([A-Z0-9_]+)=/.exec(line)?.[1]?.replace(/_FILE$/, '');
    if (variable !== undefined && !(variable in declared))
      throw new Error(`the example of ${name} sets ${variable}, which it does not have`);
  }
  return `For example, ${meaning}:\n\n\`\`\`sh\n${lines.join('\n')}\n\`\`\``;
}

/** One section for each command: its use, options and what it does. */
function commands(): string {
  return COMMANDS.map(({ name, summary, detail, args = [], options = [] }) => {
    const use = [
      'berth',
      name,
      ...args.map((a) => (a.required === true ? `<${a.name}>` : `[${a.name}]`)),
      ...(options.length > 0 ? ['[options]'] : []),
    ];
    const rows = [
      ...args.map((a) => [code(a.name), a.doc]),
      ...options.map((o) => [code(o.flags), optionDoc(o)]),
    ];
    return [
      `### ${code(`berth ${name}`)}`,
      `${summary}.` +
        (detail === undefined
          ? ''
          : `\n\n${detail.includes('\n') ? `\`\`\`text\n${detail}\n\`\`\`` : detail}`),
      `\`\`\`text\n${use.join(' ')}\n\`\`\``,
      ...(rows.length === 0 ? [] : [unescaped(table(['argument or option', 'meaning'], rows))]),
      ...exampleOfCommand(name),
    ].join('\n\n');
  }).join('\n\n');
}

function exampleOfCommand(name: string): string[] {
  const [line, meaning] = EXAMPLES[name] ?? [];
  return line === undefined ? [] : [`Example, which ${meaning}:`, `\`\`\`sh\n${line}\n\`\`\``];
}

/** Prints the help of each command of bin/launch.mjs, as the program itself does. */
async function machineCommands(): Promise<string> {
  const sections: string[] = [];
  for (const [name, { summary, example }] of Object.entries(MACHINE_COMMANDS)) {
    const [line, meaning] = example;
    sections.push(
      [
        `### ${code(`berth ${name}`)}`,
        `${summary}.`,
        `\`\`\`text\n${(await machineUsage(name)).trim()}\n\`\`\``,
        `Example, which ${meaning}:`,
        `\`\`\`sh\n${line}\n\`\`\``,
      ].join('\n\n'),
    );
  }
  return sections.join('\n\n');
}

/** Returns what `berth NAME --help` prints. */
export async function machineUsage(name: string): Promise<string> {
  const home = (ON_THE_MACHINE as Record<string, string>)[name];
  const { main } = (await import(path.join(ROOT, 'packages', home ?? '', 'src', `${name}.ts`))) as {
    main(args: string[]): Promise<number>;
  };
  const write = process.stdout.write.bind(process.stdout);
  let text = '';
  process.stdout.write = (part: string | Uint8Array) => ((text += String(part)), true);
  try {
    await main(['--help']);
  } finally {
    process.stdout.write = write;
  }
  return text;
}

/** In code spans, Markdown shows entities as they are. */
const unescaped = (text: string): string => text.replaceAll('&lt;', '<');

const optionDoc = (o: { doc: string; required?: true; choices?: readonly string[] }): string =>
  [
    o.doc,
    ...(o.choices === undefined || o.choices.every((c) => o.doc.includes(c))
      ? []
      : [`one of ${o.choices.join(', ')}`]),
    ...(o.required === true ? ['**must be given**'] : []),
  ].join('; ');

/**
 * One table for each operation; that of a deployment is split by process. Points with one stake
 * share a row, and so do the two points of a commit.
 */
function failPointTables(): Record<string, string> {
  const sections = new Map<string, Map<string, string[]>>();
  for (const { name, process, during, stake } of FAIL_POINTS) {
    const section = during === 'deploy' ? `deploy, ${process}` : during;
    const rows = sections.get(section) ?? new Map<string, string[]>();
    const key = [
      ...(during === 'deploy' ? [] : [process]),
      name.startsWith('commit.')
        ? stake.replace(/: (?:written, not committed|committed, nobody notified)$/, '')
        : stake,
    ].join('\0');
    rows.set(key, [...(rows.get(key) ?? []), code(name)]);
    sections.set(section, rows);
  }
  return Object.fromEntries(
    [...sections].map(([section, rows]) => [
      section,
      table(
        section.startsWith('deploy, ') ? ['point', 'at stake'] : ['point', 'process', 'at stake'],
        [...rows].map(([key, names]) => [names.join(', '), ...key.split('\0')]),
      ),
    ]),
  );
}

/** Returns a map: file -> name of the generated part -> its text. */
export async function generatedParts(): Promise<Record<string, Record<string, string>>> {
  return {
    'docs/api.md': { routes: routes(), examples: examples() },
    'docs/errors.md': { errors: errors(), failures: failures() },
    'docs/fail-points.md': failPointTables(),
    'docs/cli.md': { commands: commands(), machine: await machineCommands() },
    'docs/settings.md': { settings: await settings() },
    'docs/states.md': { states: states(), transitions: transitions() },
  };
}

/**
 * Returns the document with its generated parts replaced. Throws when the document has no place for
 * a part.
 */
export function withParts(document: string, parts: Record<string, string>): string {
  let text = document;
  for (const [name, part] of Object.entries(parts)) {
    const begin = `<!-- generated: ${name} -->`;
    const end = '<!-- /generated -->';
    const from = text.indexOf(begin);
    const to = text.indexOf(end, from);
    if (from === -1 || to === -1) throw new Error(`the document lacks "${begin} … ${end}"`);
    text = `${text.slice(0, from + begin.length)}\n${part}\n${text.slice(to)}`;
  }
  return text;
}

if (import.meta.main) {
  answerHelp('docs.ts');
  for (const [file, parts] of Object.entries(await generatedParts())) {
    const at = path.join(ROOT, file);
    const before = readFileSync(at, 'utf8');
    const after = withParts(before, parts);
    if (after !== before) writeFileSync(at, after);
    console.log(`${file}: ${after === before ? 'is up to date' : 'written'}`);
  }
}
