// Answers --help of the npm scripts, and refuses options that they do not have, before anything is
// set up or started. Runs on Node 20.
import { printLine } from './progress.mjs';

/**
 * `name`: as npm knows it. `options`: what may begin with a dash; a value follows in the same or in
 * the next argument. `words`: what other arguments mean. `passes`: further options are those of
 * vitest.
 * @type {Record<string, {name: string, does: string, options?: Record<string, string>, words?:
 *   string, passes?: boolean}>}
 */
export const SCRIPTS = {
  'setup.mjs': {
    name: 'setup',
    does:
      'makes a fresh clone ready: Node 24, the dependencies, and the parts that tests and the ' +
      'demo use',
    options: {
      '--s3': 'also builds the S3 server of the tests (needs Go)',
      '--devices': 'also builds an engine with devices for the tests (needs Go)',
      '--json': 'prints what this machine can do as JSON',
    },
  },
  'build.ts': {
    name: 'build',
    does: 'builds the artefact dist/berth/, a Debian package or an image',
    options: {
      '--out': 'FOLDER: where the artefact is written (dist/berth)',
      '--arch': 'NAME: architecture of the artefact',
      '--node': 'SOURCE: where its Node.js comes from',
      '--deb': 'COMPRESSION: also makes a Debian package',
      '--image': 'TAG: also makes an image',
      '--base': 'IMAGE: prepared base of the image',
    },
  },
  'demo.ts': {
    name: 'demo',
    does: 'starts all of Berth on this machine, with seven projects and a dataset',
    options: { '--exit': 'ends after the demonstration', '--keep': 'keeps its folder' },
  },
  'dashboard.ts': {
    name: 'dashboard',
    does: 'shows the dashboard with made-up data, without a server',
    options: {
      '--scenario': 'NAME of the made-up data',
      '--role': 'NAME: viewer, developer or admin',
      '--port': 'NUMBER (5173)',
    },
  },
  'check.ts': {
    name: 'check',
    does: 'runs the gates (types, lint, format, dead code) and the unit tests',
    words: 'FOLDER…: only its tests',
    passes: true,
  },
  'test.ts': {
    name: 'test',
    does: 'runs all checks and tests',
    words: 'FILE…: only these tests, as the whole run does it',
    passes: true,
  },
  'bench.ts': {
    name: 'bench',
    does: 'measures Berth against its goals',
    words: 'NAME…: only these benchmarks',
    options: {
      '--agents': 'NUMBER of agents (10000)',
      '--profile': 'FILE: CPU profile of the control plane of `agents`',
      '--floor': '`agents` also measures a bare server',
      '--no-beats': 'the agents of `agents` send no beats',
      '--redeployments': 'NUMBER of redeployments of `failover` (10)',
    },
  },
  'sim.ts': {
    name: 'sim',
    does: 'runs the seeded simulator',
    options: {
      '--seeds': 'NUMBER of seeds (1000; with --postgres 100)',
      '--from': 'NUMBER of the first seed (1)',
      '--seed': 'NUMBER: only this seed',
      '--repeat': 'NUMBER of runs of each seed',
      '--trace': 'prints every event as a JSON line',
      '--plant': 'NAME of a bug to plant',
      '--crowded': 'puts four projects on one or two nodes in each run',
      '--jobs': 'gives projects jobs, runs and release commands in each run',
      '--scaled': 'gives projects several instances, and has silent machines, in each run',
      '--without-web': 'has people who take the process web from projects and bring it back',
      '--restless': 'has people who change their minds in each run',
      '--postgres': 'runs two control planes on a private PostgreSQL',
      '--at-once': 'NUMBER of runs at the same time',
    },
  },
  'soak.ts': {
    name: 'soak',
    does: 'redeploys under load through the real Traefik, with budgets of disk and database (root)',
    options: {
      '--redeploys': 'NUMBER of redeployments; nothing is killed',
      '--minutes': 'NUMBER of minutes with random kill -9 instead (10)',
      '--projects': 'NUMBER (4)',
      '--gigabytes': 'NUMBER: size of all images (1 MB each)',
      '--keep': 'NUMBER of kept releases (3)',
      '--clean-ups': 'NUMBER of clean-ups in between (1)',
      '--seed': 'NUMBER: seed of the kills',
    },
  },
  'faults.ts': {
    name: 'test:faults',
    does: 'runs the fault suite and the fail points with real parts (root)',
    words: 'WORD…: only rows with these words',
    passes: true,
  },
  'backup-rounds.ts': {
    name: 'test:backup',
    does: 'makes backups under load, restores each and compares it',
    options: {
      '--rounds': 'NUMBER (100)',
      '--engine': 'sqlite, postgres or both',
      '--plant': 'NAME of a fault to plant',
      '--pause': 'NUMBER of milliseconds between rounds (30)',
    },
  },
  'api.ts': {
    name: 'test:api',
    does: 'runs schemathesis against a control plane (Python 3)',
    options: {
      '--examples': 'NUMBER of cases for each operation (25)',
      '--seed': 'NUMBER',
      '--role': 'admin or viewer',
    },
  },
  'test-install.ts': {
    name: 'test:install',
    does: 'installs the Debian package in a fresh Debian, and the image with compose (root)',
    words: 'FILE…',
    passes: true,
  },
  'fresh-root.mjs': {
    name: 'test:fresh',
    does: 'runs demo and tests in a fresh Debian root (root); after “--” come other commands',
    options: {
      '--worktree': 'copies the working tree instead of cloning HEAD',
      '--keep': 'keeps the root',
    },
  },
  'release.ts': {
    name: 'release',
    does:
      'makes a version (writes the number, runs check and the slow tests, commits, sets the tag), ' +
      'or with `files` everything that people download',
    words: 'VERSION: such as 0.2.0, or files',
    options: {
      '--out': 'FOLDER: where `files` writes them (dist/release)',
      '--url': 'ADDRESS at which they are published; install.sh reads them there',
      '--key': 'FILE: private key of OpenSSH that signs the checksums',
      '--programs': 'FOLDER with traefik_VERSION_linux_ARCH and docker-buildx_VERSION_linux_ARCH',
      '--arch': 'NAME: architecture (amd64 and arm64); can be repeated',
      '--node': 'SOURCE: where the Node.js of the packages comes from',
      '--deb': 'COMPRESSION of the packages (xz)',
    },
  },
  'docs.ts': { name: 'docs', does: 'writes the generated tables of docs/' },
  'pictures.ts': {
    name: 'pictures',
    does: 'records the pictures of the README and of the docs again',
    words: 'session, demo, pages or docs: only these',
  },
};

/**
 * Prints the help and ends the process if it is asked for. Ends it with 2 for an option that the
 * script does not have.
 * @param {string} script name in scripts/
 * @param {string[]} [argv]
 */
export function answerHelp(script, argv = process.argv.slice(2)) {
  const about = SCRIPTS[script];
  if (about === undefined) return;
  // The arguments after `--` belong to somebody else.
  const end = argv.indexOf('--');
  const own = end === -1 ? argv : argv.slice(0, end);
  if (own.includes('--help') || own.includes('-h')) {
    const options = Object.entries(about.options ?? {}).map(
      ([flag, text]) => `  ${flag.padEnd(14)} ${text}`,
    );
    const words = about.words === undefined ? [] : [`  ${about.words}`];
    const more = about.passes === true ? ['  further options are passed to vitest'] : [];
    process.stdout.write(
      `npm run ${about.name} -- [options]\n${about.does}\n` +
        [...words, ...options, ...more].map((line) => `${line}\n`).join(''),
    );
    process.exit(0);
  }
  if (about.passes === true) return;
  const wrong = own.find(
    (given) =>
      given.startsWith('-') && !Object.hasOwn(about.options ?? {}, given.split('=', 1)[0] ?? ''),
  );
  if (wrong === undefined) return;
  printLine(
    `npm run ${about.name} has no option ${wrong.split('=', 1)[0]}; see npm run ${about.name} -- ` +
      '--help',
  );
  process.exit(2);
}
