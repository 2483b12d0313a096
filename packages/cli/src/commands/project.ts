/** Commands for projects: project, link, env. */
import { defined } from '@berth/kit/defined';
import { parseRequires, type Requires } from '@berth/wire/machine';
import { ProjectCreate, ProjectPatch, restWord } from '@berth/wire/project';
import type { RepositoryFound } from '@berth/wire/repository-look';
import { MOUNT_MODES, type MountMode } from '@berth/wire/dataset';
import { confirmed, readValue } from '../ask.ts';
import type { Cli } from '../cli.ts';
import type { Project } from '@berth/wire/project';
import { sayHowToApply } from '../project/apply.ts';
import { CliError, EXIT, usage } from '../problem.ts';
import { writeLink } from '../project/link.ts';
import { lookAt } from '../project/look.ts';
import { createdText, defaultsHere, nameFrom } from '../project/new-project.ts';
import { proposed } from '../project/proposals.ts';
import { readEnvFile } from '../project/env-file.ts';
import { allPages } from '../project/pages.ts';
import { table } from '../output/text.ts';
import { toRemove } from '../output/to-remove.ts';
import { argument, type Command, type Option, type Options, textOf } from './command.ts';
import { flagsOf } from './flags.ts';
import { printProject } from './show.ts';

const DOCS = {
  git_url: 'address of the repository: https, ssh or user@host:path',
  branch: 'branch to deploy (default: main, or the branch of this folder)',
  dockerfile_path: 'path of the Dockerfile in the repository (default: Dockerfile)',
  build_context: 'folder of the repository that the build gets (default: all of it)',
  build_target: 'stage of the Dockerfile to build (default: the last one)',
  build_args: 'build argument of the Dockerfile; not for secrets',
  submodules: 'whether the build gets the submodules of the repository (default: yes)',
  deploy_on_push: 'whether a push to the branch deploys (default: yes)',
  watch_paths: 'a push deploys only if it changes one of these paths, such as src or **/*.json',
  domain_prefix: 'first part of the address (default: the name)',
  container_port: 'port that the application listens on in its container (default: 8080)',
  auth_required: 'require a login (default: no)',
  cors_origins:
    'origin whose pages may call the project although it requires a login, such as ' +
    'https://app.example.com',
  health_path: 'path that must answer below 400 before the version goes live',
  start_seconds:
    'time that a new container has to answer, also its HEALTHCHECK (default: the setting ' +
    'PROBE_TIMEOUT)',
  release_command:
    'one word of a command that runs once for each new version, before it starts; without a shell',
  release_timeout_seconds: 'time limit of the release command in seconds (default: 600)',
  memory_bytes: 'memory limit, such as 512MiB',
  cpus: 'CPU limit, such as 0.5',
  drain_seconds: 'time without new requests before the old version is stopped',
  stop_grace_seconds: 'time between SIGTERM and SIGKILL',
  replace: 'rolling: the new version starts beside the old one; recreate: after it stopped',
  on_dataset_change: 'what to do when a dataset of the project has a new version',
  spread: 'nodes: instances go to different nodes; pack: the score alone decides',
  sticky: 'a cookie keeps a visitor on one of several instances (default: no)',
  on_node_lost: 'move: start its instances on another node; wait: wait for the node',
  allow_exec: 'allow berth exec and berth tunnel (default: no); only admins change it',
  exec_role: 'the lowest role in the project that may use them (default: admin)',
  data_copies: 'nodes that keep its datasets, so that another node can take over without a copy',
} as const;
/** `env` and `domains` have commands of their own. */
const createFlags = flagsOf(ProjectCreate, {
  leaveOut: ['name', 'env', 'domains', 'requires'],
  docs: DOCS,
});
const patchFlags = flagsOf(ProjectPatch, { leaveOut: ['env', 'domains', 'requires'], docs: DOCS });
/** Settings that are not part of a release. */
const AT_ONCE: ReadonlySet<string> = new Set(['allow_exec', 'exec_role']);
const DATASET: Option = {
  flags: '--dataset <name:mode:path>',
  doc:
    `mount a dataset: NAME, NAME:MODE or NAME:MODE:/PATH, MODE is ${MOUNT_MODES.join(' or ')}; ` +
    'may be repeated; “none” removes all',
  repeats: true,
};
const VOLUME: Option = {
  flags: '--volume <name:path>',
  doc:
    'keep a folder of the container across deployments: NAME:/PATH; may be repeated; “none” ' +
    'removes all mounts and keeps the data',
  repeats: true,
};
const REQUIRES: Option = {
  flags: '--requires <what>',
  doc:
    'what a node must have: label:NAME=VALUE, arch:ARCH or device:KIND=COUNT; may be repeated; ' +
    '“none” removes all',
  repeats: true,
};
export const DRY_RUN: Option = {
  flags: '--dry-run',
  doc: 'show what would change, and change nothing',
};
export const YES: Option = { flags: '-y, --yes', doc: 'do not ask' };
export const PROJECT_ARGUMENT = {
  name: 'project',
  doc: 'name or id; default: the project of this folder',
} as const;
const NAME = { name: 'NAME', doc: 'name of the variable', required: true } as const;

function stateText(project: Project): string {
  const { deleting, stopped, running_deployment_id } = project;
  if (deleting) return 'being deleted';
  if (stopped) return restWord(project);
  return running_deployment_id === null ? 'not live' : 'live';
}

export const PROJECT_COMMANDS: readonly Command[] = [
  {
    name: 'project list',
    summary: 'List all projects by name',
    routes: ['listProjects'],
    async run(cli) {
      const items = await allPages((cursor) =>
        cli.client().call('listProjects', { query: { limit: 200, ...cursor } }),
      );
      cli.print({ items }, () =>
        items.length === 0
          ? 'no projects; create one: berth project create'
          : table(items, [
              { head: 'NAME', of: (p) => p.name },
              { head: 'STATE', of: stateText },
              { head: 'ADDRESS', of: (p) => p.url ?? '–' },
              { head: 'REPOSITORY', of: (p) => `${p.git_url} (${p.branch})` },
            ]),
      );
    },
  },
  {
    name: 'project create',
    summary: 'Create a project; in a folder with a git remote, its values are the defaults',
    detail:
      'A builder reads the repository if it can. Its default branch, only Dockerfile and ' +
      'exposed port are used where you give no value. In a terminal the command asks first; ' +
      'otherwise it prints what it took.',
    args: [{ name: 'name', doc: 'name of the project; default: the name of the repository' }],
    options: [
      ...createFlags.options.map((option) => ({ ...option })),
      DATASET,
      VOLUME,
      REQUIRES,
      {
        flags: '--no-look',
        doc: 'do not look into the repository; what is not given gets its default',
      },
      { flags: '--no-link', doc: 'do not write .berth.json' },
    ],
    routes: ['createProject', 'listDatasets', 'createRepositoryLook', 'getRepositoryLook'],
    async run(cli, [named], options) {
      const settings = createFlags.read(options);
      const here = settings['git_url'] === undefined ? await defaultsHere(cli) : null;
      const git_url = settings['git_url'] ?? here?.git_url ?? undefined;
      if (typeof git_url !== 'string')
        throw usage(
          'this folder has no git remote “origin”, so the repository must be named',
          'berth project create NAME --git-url URL',
        );
      const name = named ?? nameFrom(git_url);
      const branch = here?.branch ?? undefined;
      const body = {
        ...defined({ branch }),
        ...settings,
        ...(await datasetsOf(cli, options)),
        ...volumesOf(options),
        ...requiresOf(options),
        name,
        git_url,
        domain_prefix: (settings['domain_prefix'] as string | undefined) ?? name,
      };
      const proposals = options['look'] === false ? {} : await proposed(cli, git_url, body);
      const project = await cli.client().call('createProject', { body: { ...body, ...proposals } });
      if (here !== null && here.repository !== null && options['link'] !== false)
        writeLink(cli, project);
      cli.print(project, () => createdText(project));
      cli.say(`next: berth deploy ${project.name}`);
    },
  },
  {
    name: 'project look',
    summary: 'Let a builder say which branches and Dockerfiles a repository has',
    detail:
      'It works before a project exists. A private repository can be read only for its ' +
      'project, with the deploy key or git token of that project.',
    args: [
      {
        name: 'url',
        doc: 'git address of the repository; default: the remote “origin” of this folder',
      },
    ],
    options: [
      {
        flags: '--branch <name>',
        doc: 'branch to read (default: the default branch of the repository)',
      },
      {
        flags: '--project <project>',
        doc: 'name or id: read the repository of this project with its deploy key or git token',
      },
    ],
    routes: ['createRepositoryLook', 'getRepositoryLook'],
    async run(cli, [named], options) {
      const project_id = textOf(options, 'project');
      const git_url =
        named ?? (project_id === undefined ? (await defaultsHere(cli)).git_url : undefined);
      if (git_url === null)
        throw usage(
          'this folder has no git remote “origin”, so the repository must be named',
          'berth project look URL',
        );
      const look = await lookAt(cli, {
        ...defined({ git_url, project_id }),
        branch: textOf(options, 'branch') ?? null,
      });
      if (look.error !== null)
        throw new CliError(EXIT.refused, look.error.code, look.error.message);
      const { found, unavailable } = look;
      cli.print(look, () =>
        found === null ? `not known: ${unavailable ?? 'no answer'}` : lookText(found),
      );
    },
  },
  {
    name: 'project show',
    summary: 'Show the settings of a project',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['getProject', 'projectDataCopies'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      const copies =
        project.data_copies > 1
          ? await cli.client().call('projectDataCopies', { params: { id: project.id } })
          : null;
      cli.print({ ...project, ...defined({ copies: copies ?? undefined }) }, () =>
        printProject(project, copies),
      );
    },
  },
  {
    name: 'project edit',
    summary: 'Change settings of a project; most take effect with the next deployment',
    args: [PROJECT_ARGUMENT],
    options: [...patchFlags.options, DATASET, VOLUME, REQUIRES],
    aboutProject: true,
    routes: ['patchProject', 'listDatasets', 'getDeployment'],
    async run(cli, [named], options) {
      const body = {
        ...patchFlags.read(options),
        ...(await datasetsOf(cli, options)),
        ...volumesOf(options),
        ...requiresOf(options),
      };
      if (Object.keys(body).length === 0)
        throw usage('nothing was given to change', 'berth project edit --help');
      const { id } = await cli.project(named);
      const project = await cli.client().call('patchProject', { params: { id }, body });
      cli.print(project, () => `changed ${Object.keys(body).join(', ')} of ${project.name}`);
      // Health tells whether a version has the change only if nothing else is wrong with it.
      if (Object.keys(body).every((field) => AT_ONCE.has(field))) cli.say('it is in effect');
      else await sayHowToApply(cli, project);
    },
  },
  {
    name: 'project delete',
    summary: 'Delete a project, its containers and its address',
    args: [{ ...PROJECT_ARGUMENT, doc: 'name or id', required: true }],
    options: [
      YES,
      {
        flags: '--volumes',
        doc: 'delete its volumes with their data too; without it they stay on their node',
      },
    ],
    routes: ['deleteProject', 'getProject'],
    async run(cli, args, { yes, volumes }) {
      const project = await cli.project(argument(args, 0));
      await confirmed(
        cli.io,
        yes === true,
        `Delete ${project.name}${volumes === true ? ' with the data of its volumes' : ''} and ` +
          `${project.url === null ? 'end its processes' : `stop serving ${project.url}`}?`,
      );
      const deleted = await cli.client().call('deleteProject', {
        params: { id: project.id },
        ...defined({ query: volumes === true ? { volumes: true } : undefined }),
      });
      cli.print(deleted, () =>
        [
          `${project.name} is being deleted; it is gone when its containers are removed`,
          ...toRemove(deleted.unmanaged),
        ].join('\n'),
      );
    },
  },
  {
    name: 'link',
    summary: 'Link this folder to a project: writes .berth.json',
    args: [
      { name: 'project', doc: 'name or id; default: the project that builds from this repository' },
    ],
    aboutProject: true,
    routes: ['getProject'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      const path = writeLink(cli, project);
      cli.print(
        { path, url: cli.session().url, project: project.name },
        () => `this folder belongs to ${project.name}`,
      );
    },
  },
  {
    name: 'env list',
    summary: 'List the environment variables of a project',
    detail: 'A viewer gets the names only.',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['getProject'],
    async run(cli, [named]) {
      const { env, env_names, env_hidden } = await cli.project(named);
      cli.print({ env_names, env_hidden, ...defined({ env }) }, () =>
        env_names.length === 0
          ? 'no variables; set one: berth env set NAME'
          : env_names
              .map((name) => (env === undefined ? name : `${name}=${env[name] ?? ''}`))
              .join('\n'),
      );
    },
  },
  {
    name: 'env set',
    summary: 'Set environment variables; the value of a single NAME comes from standard input',
    detail:
      'NAME=value sets several variables at once. Other users of the machine can read ' +
      'arguments, and a shell keeps them in its history: ' +
      'for a value that must not be seen use berth secret set. No value is printed.',
    args: [
      {
        name: 'NAME',
        doc: 'NAME=value for each variable, or one NAME alone',
        required: true,
        repeats: true,
      },
    ],
    aboutProject: true,
    routes: ['putEnv', 'patchProject'],
    async run(cli, args) {
      const texts = args.map((text) => text ?? '');
      const [only = ''] = texts;
      if (texts.length === 1 && !only.includes('=')) {
        const project = await cli.project();
        const value = await readValue(cli.io, `Value of ${only}`, false);
        const changed = await cli
          .client()
          .call('putEnv', { params: { id: project.id, name: only }, body: { value } });
        return await sayEnv(cli, changed, `set ${only} of ${project.name}`);
      }
      const values = pairsIn(texts);
      const project = await cli.project();
      const changed = await cli.client().call('patchProject', {
        params: { id: project.id },
        body: { env: Object.fromEntries(values) },
      });
      await sayEnv(cli, changed, `set ${[...values.keys()].join(', ')} of ${project.name}`);
    },
  },
  {
    name: 'env import',
    summary: 'Set the environment variables of a file in the format of .env',
    detail:
      'Variables that the file does not name stay. Values may be in quotes and have several ' +
      'lines; export and comments are allowed. ' +
      'An invalid line is named, and then nothing is changed. No value is printed.',
    args: [{ name: 'file', doc: 'a path, or “-” for standard input', required: true }],
    options: [DRY_RUN],
    aboutProject: true,
    routes: ['getProject', 'patchProject'],
    async run(cli, args, { dryRun }) {
      const values = await readEnvFile(cli.io, argument(args, 0));
      const project = await cli.project();
      const names = [...values.keys()];
      const has = new Set(project.env_names);
      const isEqual = (name: string): boolean => project.env?.[name] === values.get(name);
      const added = names.filter((name) => !has.has(name));
      const changed = names.filter((name) => has.has(name) && !isEqual(name));
      const unchanged = names.filter((name) => has.has(name) && isEqual(name));
      const isDry = dryRun === true;
      const patch = Object.fromEntries(
        [...added, ...changed].map((name) => [name, values.get(name) ?? '']),
      );
      const isEmpty = added.length + changed.length === 0;
      if (!isDry && !isEmpty)
        await cli
          .client()
          .call('patchProject', { params: { id: project.id }, body: { env: patch } });
      cli.print({ project: project.name, dry_run: isDry, added, changed, unchanged }, () =>
        [
          ...(added.length === 0 ? [] : [`${isDry ? 'would add' : 'added'}: ${added.join(', ')}`]),
          ...(changed.length === 0
            ? []
            : [`${isDry ? 'would change' : 'changed'}: ${changed.join(', ')}`]),
          ...(unchanged.length === 0 ? [] : [`unchanged: ${unchanged.join(', ')}`]),
        ].join('\n'),
      );
      if (!isDry && !isEmpty) await sayHowToApply(cli, project, ', to use it');
    },
  },
  {
    name: 'env unset',
    summary: 'Remove an environment variable',
    args: [NAME],
    aboutProject: true,
    routes: ['deleteEnv', 'getDeployment'],
    async run(cli, args) {
      const project = await cli.project();
      const changed = await cli
        .client()
        .call('deleteEnv', { params: { id: project.id, name: argument(args, 0) } });
      await sayEnv(cli, changed, `removed ${argument(args, 0)} of ${project.name}`);
    },
  },
];

/**
 * Parses arguments of the form NAME=value. Throws wrong usage that lists all invalid arguments.
 * Error messages never contain a value.
 */
function pairsIn(given: readonly string[]): Map<string, string> {
  const values = new Map<string, string>();
  const problems: string[] = [];
  for (const [i, text] of given.entries()) {
    const at = text.indexOf('=');
    const name = text.slice(0, at === -1 ? undefined : at);
    if (at === -1) problems.push(`argument ${i + 1} (${name}) has no value`);
    else if (name === '') problems.push(`argument ${i + 1} has no name`);
    else if (values.has(name)) problems.push(`${name} is given twice`);
    values.set(name, text.slice(at + 1));
  }
  if (problems.length > 0)
    throw usage(problems.join('; '), 'write NAME=value for each of several variables');
  return values;
}

async function sayEnv(cli: Cli, project: Project, text: string): Promise<void> {
  cli.print({ project: project.name, env_names: project.env_names }, () => text);
  await sayHowToApply(cli, project, ', to use it');
}

/** Returns the volumes that `--volume` gives. Empty without the option. */
function volumesOf({ volume }: Options): { volumes?: { name: string; mount_path: string }[] } {
  const volumes = volume as string[] | undefined;
  if (volumes === undefined) return {};
  if (volumes.includes('none')) return { volumes: [] };
  const wrong = volumes.filter((text) => text.indexOf(':') < 1);
  if (wrong.length > 0)
    throw usage(`${wrong.map((text) => `--volume ${text}`).join(', ')}: write NAME:/PATH`);
  return {
    volumes: volumes.map((text) => {
      const at = text.indexOf(':');
      return { name: text.slice(0, at), mount_path: text.slice(at + 1) };
    }),
  };
}

function requiresOf({ requires }: Options): { requires?: Requires } {
  const lines = requires as string[] | undefined;
  if (lines === undefined) return {};
  if (lines.includes('none')) return { requires: {} };
  const parsed = parseRequires(lines);
  if ('bad' in parsed)
    throw usage(`--requires ${parsed.bad}: write label:NAME=VALUE, arch:ARCH or device:KIND=COUNT`);
  return { requires: parsed };
}

/** Returns the mounts that `--dataset` gives, with ids for names. Empty without the option. */
async function datasetsOf(
  cli: Cli,
  { dataset }: Options,
): Promise<{ datasets?: { dataset_id: string; mode: MountMode; mount_path?: string }[] }> {
  const mounts = dataset as string[] | undefined;
  if (mounts === undefined) return {};
  if (mounts.includes('none')) return { datasets: [] };
  const datasets = await allPages((cursor) =>
    cli.client().call('listDatasets', { query: { limit: 200, ...cursor } }),
  );
  return {
    datasets: mounts.map((text) => {
      const [name = '', mode = 'dependency', mount_path] = text.split(':');
      const matchingDataset = datasets.find((one) => one.name === name || one.id === name);
      if (matchingDataset === undefined)
        throw usage(`there is no dataset “${name}”`, 'berth dataset list');
      if (mode !== 'dependency' && mode !== 'readwrite')
        throw usage(`--dataset ${text}: the mode must be ${MOUNT_MODES.join(' or ')}`);
      return { dataset_id: matchingDataset.id, mode, ...defined({ mount_path }) };
    }),
  };
}

function portsText(ports: readonly number[] | null): string {
  if (ports === null) return 'not readable';
  return ports.length === 0 ? 'exposes no port' : `exposes ${ports.join(', ')}`;
}

function lookText(found: RepositoryFound): string {
  const more = found.branches_left_out === 0 ? '' : ` and ${found.branches_left_out} more`;
  const lines = [`branches: ${found.branches.join(', ')}${more}`];
  if (found.branch === null)
    return [...lines, 'the repository does not have the branch'].join('\n');
  for (const { path, ports, targets } of found.dockerfiles) {
    const stages = targets.map(({ name }) => name).join(', ');
    lines.push(`${path}: ${portsText(ports)}${stages === '' ? '' : `; stages ${stages}`}`);
  }
  if (found.dockerfiles.length === 0) lines.push(`no Dockerfile on ${found.branch}`);
  if (found.dockerfiles_left_out > 0) lines.push(`and ${found.dockerfiles_left_out} more`);
  if (found.submodules) lines.push('it has submodules');
  if (found.lfs)
    lines.push('it uses Git LFS: with --git-lfs the build gets those files, otherwise pointers');
  return lines.join('\n');
}
