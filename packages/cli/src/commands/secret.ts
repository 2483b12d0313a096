/** Commands for secrets. A value comes from a prompt or standard input, and is never printed. */
import { ROUTES } from '@berth/wire/routes';
import type { Secret } from '@berth/wire/secret';
import { confirmed, readValue } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { sayHowToApply } from '../project/apply.ts';
import { usage } from '../problem.ts';
import { table } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { argument, type Command, nameArgument, textOf } from './command.ts';
import { readEnvFile } from '../project/env-file.ts';
import { flagsOf } from './flags.ts';
import { DRY_RUN, YES } from './project.ts';

const NAME = { name: 'NAME', doc: 'name of the secret', required: true } as const;
const setFlags = flagsOf(ROUTES.putSecret.body, {
  leaveOut: ['value'],
  docs: {
    scope: 'run: the container gets it; build: the build gets it',
    as: 'env: an environment variable; file: /run/secrets/NAME',
  },
});

export const SECRET_COMMANDS: readonly Command[] = [
  {
    name: 'secret list',
    summary: ROUTES.listSecrets.summary,
    args: [{ name: 'project', doc: 'name or id; default: the project of this folder' }],
    aboutProject: true,
    routes: ['listSecrets'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      const { items } = await cli.client().call('listSecrets', { params: { id: project.id } });
      cli.print({ items }, () =>
        items.length === 0 ? 'no secrets; set one: berth secret set NAME' : secretTable(cli, items),
      );
    },
  },
  {
    name: 'secret show',
    summary: ROUTES.getSecret.summary,
    args: [NAME],
    aboutProject: true,
    routes: ['getSecret'],
    async run(cli, args) {
      const project = await cli.project();
      const secret = await cli
        .client()
        .call('getSecret', { params: { id: project.id, name: argument(args, 0) } });
      cli.print(secret, () => secretTable(cli, [secret]));
    },
  },
  {
    name: 'secret set',
    summary: 'Set a secret; its value comes from a prompt or from standard input',
    detail: 'One trailing newline of the value is removed.',
    args: [NAME],
    options: setFlags.options,
    aboutProject: true,
    routes: ['putSecret', 'getDeployment'],
    async run(cli, args, options) {
      const name = nameArgument(args, 'secret set');
      const project = await cli.project();
      const value = await readValue(cli.io, `Value of ${name}`, true);
      if (value === '')
        throw usage(
          `the value of ${name} is empty`,
          `give it on standard input: berth secret set ${name} < FILE`,
        );
      const secret = await cli.client().call('putSecret', {
        params: { id: project.id, name },
        body: { value, ...setFlags.read(options) },
      });
      cli.print(
        secret,
        () => `set ${name} of ${project.name} (fingerprint ${secret.fingerprint.slice(0, 12)})`,
      );
      await sayHowToApply(cli, project, ', to use it');
    },
  },
  {
    name: 'secret unset',
    summary: ROUTES.deleteSecret.summary,
    args: [NAME],
    options: [YES],
    aboutProject: true,
    routes: ['deleteSecret'],
    async run(cli, args, { yes }) {
      const project = await cli.project();
      const name = argument(args, 0);
      await confirmed(
        cli.io,
        yes === true,
        `Delete the secret ${name} of ${project.name}? Its value cannot be read back.`,
      );
      await cli.client().call('deleteSecret', { params: { id: project.id, name } });
      cli.print(
        { project: project.name, deleted: name },
        () => `deleted ${name} of ${project.name}`,
      );
    },
  },
  {
    name: 'secret import',
    summary: `${ROUTES.importSecret.summary}, or set the secrets of a file`,
    detail:
      'NAME turns the environment variable of that name into a secret. --file sets each entry ' +
      'of a file in the format of .env as a secret. ' +
      'Secrets that the file does not name stay. No value is printed.',
    args: [{ name: 'NAME', doc: 'name of the environment variable; not together with --file' }],
    options: [
      { flags: '--file <path>', doc: 'a file in the format of .env, or “-” for standard input' },
      DRY_RUN,
      ...setFlags.options,
    ],
    aboutProject: true,
    routes: ['importSecret', 'listSecrets', 'putSecret'],
    async run(cli, args, options) {
      const path = textOf(options, 'file');
      const name = argument(args, 0);
      const settings = setFlags.read(options);
      if ((path === undefined) === (name === ''))
        throw usage(
          'give NAME or --file',
          'berth secret import NAME moves an environment variable; --file FILE sets the ' +
            'secrets of a file',
        );
      if (path !== undefined) return importFile(cli, path, settings, options['dryRun'] === true);
      if (options['dryRun'] === true || Object.keys(settings).length > 0)
        throw usage('--dry-run, --scope and --as are for --file only');
      const project = await cli.project();
      const secret = await cli.client().call('importSecret', { params: { id: project.id, name } });
      cli.print(secret, () => `${secret.name} of ${project.name} is a secret now`);
    },
  },
];

async function importFile(
  cli: Cli,
  path: string,
  settings: Record<string, unknown>,
  isDry: boolean,
): Promise<void> {
  const values = await readEnvFile(cli.io, path);
  const empty = [...values].filter(([, value]) => value === '').map(([name]) => name);
  if (empty.length > 0)
    throw usage(
      `no value of a secret may be empty: ${empty.join(', ')}`,
      'remove the lines; nothing was changed',
    );
  const project = await cli.project();
  const { items } = await cli.client().call('listSecrets', { params: { id: project.id } });
  const has = new Set(items.map((secret) => secret.name));
  const names = [...values.keys()];
  const [added, replaced] = [
    names.filter((one) => !has.has(one)),
    names.filter((one) => has.has(one)),
  ];
  const set: string[] = [];
  if (!isDry)
    for (const [one, value] of values) {
      try {
        await cli.client().call('putSecret', {
          params: { id: project.id, name: one },
          body: { value, ...settings },
        });
      } catch (error) {
        // Name the secrets that were set, because each one is a separate request.
        cli.say(
          set.length === 0
            ? `${one} was refused; nothing was changed`
            : `${one} was refused; set before it: ${set.join(', ')}`,
        );
        throw error;
      }
      set.push(one);
    }
  cli.print({ project: project.name, dry_run: isDry, added, replaced }, () =>
    [
      ...(added.length === 0 ? [] : [`${isDry ? 'would add' : 'added'}: ${added.join(', ')}`]),
      ...(replaced.length === 0
        ? []
        : [`${isDry ? 'would replace' : 'replaced'}: ${replaced.join(', ')}`]),
    ].join('\n'),
  );
  if (!isDry) await sayHowToApply(cli, project, ', to use them');
}

const secretTable = (cli: Cli, items: readonly Secret[]): string =>
  table(items, [
    { head: 'NAME', of: (s) => s.name },
    { head: 'SCOPE', of: (s) => s.scope },
    { head: 'AS', of: (s) => s.as },
    { head: 'SET', of: (s) => ago(s.set_at, cli.io.now()) },
    { head: 'BY', of: (s) => s.set_by ?? '–' },
    { head: 'FINGERPRINT', of: (s) => s.fingerprint.slice(0, 12) },
  ]);
