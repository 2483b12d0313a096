// Programs of the system: what is needed, what for, and which Debian package has it.
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { findProgram, lastLines, run } from './run.mjs';
import { say, step } from './say.mjs';

/** `engine: true`: only where no container engine answers yet. `file`: a path that tells instead of a program; `there`: a look of its own. `tests`: nothing but the tests has a use for it. */
export const systemParts = [
  { part: 'git', program: 'git', package: 'git', why: 'fetches the source of what is deployed' },
  { part: 'ssh', program: 'ssh', package: 'openssh-client', why: 'clones git addresses that begin with ssh or user@host' },
  { part: 'rsync', program: 'rsync', package: 'rsync', why: 'copies datasets to the nodes' },
  { part: 'docker client', program: 'docker', package: 'docker.io', why: 'builds and runs containers' },
  { part: 'container engine', program: 'dockerd', package: 'docker.io', engine: true, why: 'builds and runs containers' },
  { part: 'iptables', program: 'iptables', package: 'iptables', engine: true, why: "the engine publishes containers' ports with it" },
  { part: 'ip', program: 'ip', package: 'iproute2', engine: true, why: 'gives the engine a network of its own' },
  { part: 'nsenter', program: 'nsenter', package: 'util-linux', engine: true, why: 'gives the engine namespaces of its own' },
  {
    part: 'slirp4netns',
    program: 'slirp4netns',
    package: 'slirp4netns',
    engine: true,
    optional: true,
    why: 'lets builds inside that network reach package registries',
  },
  { part: 'htpasswd', program: 'htpasswd', package: 'apache2-utils', why: "the registry's password file" },
  { part: 'busybox', program: 'busybox', package: 'busybox-static', why: 'base image of the examples where no hub can be reached' },
  {
    part: 'certificates',
    file: '/etc/ssl/certs/ca-certificates.crt',
    package: 'ca-certificates',
    optional: true,
    why: 'https from inside builds',
  },
  {
    part: 'PostgreSQL',
    there: hasPostgresServer,
    package: 'postgresql',
    optional: true,
    tests: true,
    why: 'tests with two control planes run on servers of their own; Berth itself needs none (SQLite)',
  },
  {
    part: 'faketime',
    program: 'faketime',
    package: 'faketime',
    optional: true,
    tests: true,
    why: 'the fault suite sets an agent’s clock an hour off with it',
  },
  {
    part: 'bindfs',
    program: 'bindfs',
    package: 'bindfs',
    optional: true,
    tests: true,
    why: 'tests hang, kill and unmount a share that is mounted with it',
  },
  {
    part: 'Chromium',
    program: 'chromium',
    package: 'chromium',
    optional: true,
    tests: true,
    why: 'tests of the sign-in run in a real browser',
  },
];

/** Debian keeps the server's programs in a folder for each version, not on PATH. */
function hasPostgresServer() {
  const debian = '/usr/lib/postgresql';
  const versions = existsSync(debian) ? readdirSync(debian) : [];
  return versions.some((version) => existsSync(join(debian, version, 'bin', 'initdb'))) || findProgram('initdb') !== undefined;
}

const aptOptions = [
  // Another apt (unattended-upgrades) may be at work.
  '-o',
  'DPkg::Lock::Timeout=120',
  '-o',
  'Dpkg::Options::=--force-confold',
];

/** The parts that are not there. */
export function missingSystemParts(engineAnswers, forTests) {
  return systemParts.filter((part) => {
    if (part.tests === true && !forTests) return false;
    if (part.engine === true && engineAnswers) return false;
    if (part.there !== undefined) return !part.there();
    return part.file === undefined ? findProgram(part.program) === undefined : !existsSync(part.file);
  });
}

export function isDebian() {
  return findProgram('apt-get') !== undefined && findProgram('dpkg') !== undefined;
}

/** Whether we may and can install Debian packages. */
export function mayInstall() {
  return process.platform === 'linux' && process.getuid?.() === 0 && isDebian();
}

export function aptEnvironment() {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' };
  // Without an init system a package's start script would run the engine here, in the machine's own network,
  // with nobody to stop it. invoke-rc.d starts nothing in runlevel 1.
  if (!existsSync('/run/systemd/system')) env.RUNLEVEL = '1';
  return env;
}

/** Installs the packages of `parts`; tells what it does. What fails is told too and shows as missing afterwards. */
export async function installSystemParts(parts) {
  const packages = [...new Set(parts.map((part) => part.package))];
  say(`these system packages are missing and get installed:`);
  for (const name of packages) say(`  ${name.padEnd(16)} ${parts.find((part) => part.package === name).why}`);
  await step('apt-get update', () => aptGet(['update', '-qq']));
  // Newer Debian has the client in a package of its own.
  if (packages.includes('docker.io') && (await run(['apt-cache', 'show', 'docker-cli'])).ok) packages.push('docker-cli');
  const install = () => aptGet(['install', '-y', '-qq', '--no-install-recommends', ...packages]);
  await step(`apt-get install ${packages.join(' ')}`, () => (packages.includes('postgresql') ? withoutCluster(install) : install()));
}

/**
 * Debian's package makes a database cluster at once and starts it, now and at every boot. Ours is only the program: for the
 * time of the installation its own setting says that no cluster is to be made, and afterwards stands as the package has it.
 */
async function withoutCluster(install) {
  const folder = '/etc/postgresql-common';
  const file = join(folder, 'createcluster.conf');
  // Somebody's own choice.
  if (existsSync(file)) return install();
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, 'create_main_cluster = false\n');
  try {
    return await install();
  } finally {
    // Ours was kept, and the package's put beside it.
    rmSync(file, { force: true });
    const theirs = ['ucf-dist', 'dpkg-dist'].map((end) => `${file}.${end}`).find((path) => existsSync(path));
    if (theirs !== undefined) renameSync(theirs, file);
  }
}

async function aptGet(args) {
  const result = await run(['apt-get', ...aptOptions, ...args], {
    env: aptEnvironment(),
    deadlineMs: 900_000,
    patience: `at apt-get ${args[0]}`,
  });
  // A third party's source that does not answer fails `update` although Debian's own lists came: install decides.
  if (!result.ok) say(`  apt-get ${args[0]} ended with ${result.code}:\n${lastLines(result.output)}`);
  return result.ok;
}

/** What to tell a person about parts that are missing here. */
export function explainMissing(parts) {
  return parts.map((part) => ({ part: part.part, why: part.why, how: howToGet(part) }));
}

function howToGet(part) {
  if (isDebian()) return `as root: apt-get install --no-install-recommends ${part.package}`;
  if (part.package === 'docker.io') return 'install Docker Engine (docs.docker.com/engine/install) and start it';
  return `install ${part.program ?? part.package} with your system's package manager`;
}
