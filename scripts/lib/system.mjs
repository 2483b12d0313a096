// Programs of the system: which are needed, for what, and which Debian package has them.
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { findProgram, lastLines, run } from './run.mjs';
import { printLine, step } from './progress.mjs';

/**
 * `engine: true`: needed only where no container engine answers. `file`: this path shows whether
 * the part exists. `there`: a function that shows it. `tests`: only tests need the part. `service`:
 * its package starts a service of the machine, so set-up installs it only where no init system
 * runs.
 */
export const systemParts = [
  { part: 'git', program: 'git', package: 'git', why: 'fetches the source code of deployments' },
  {
    part: 'ssh',
    program: 'ssh',
    package: 'openssh-client',
    why: 'clones git addresses that begin with ssh or user@host',
  },
  { part: 'rsync', program: 'rsync', package: 'rsync', why: 'copies datasets to the nodes' },
  {
    part: 'docker client',
    program: 'docker',
    package: 'docker.io',
    why: 'builds and runs containers',
  },
  {
    part: 'container engine',
    program: 'dockerd',
    package: 'docker.io',
    engine: true,
    why: 'builds and runs containers',
  },
  {
    part: 'iptables',
    program: 'iptables',
    package: 'iptables',
    engine: true,
    why: "publishes containers' ports",
  },
  {
    part: 'ip',
    program: 'ip',
    package: 'iproute2',
    engine: true,
    why: 'gives the engine its own network',
  },
  {
    part: 'nsenter',
    program: 'nsenter',
    package: 'util-linux',
    engine: true,
    why: 'gives the engine its own namespaces',
  },
  {
    part: 'slirp4netns',
    program: 'slirp4netns',
    package: 'slirp4netns',
    engine: true,
    optional: true,
    why: 'lets builds inside that network reach package registries',
  },
  {
    part: 'htpasswd',
    program: 'htpasswd',
    package: 'apache2-utils',
    why: "writes the registry's password file",
  },
  {
    part: 'busybox',
    program: 'busybox',
    package: 'busybox-static',
    why: 'is the base image of the examples where no image hub can be reached',
  },
  {
    part: 'certificates',
    file: '/etc/ssl/certs/ca-certificates.crt',
    package: 'ca-certificates',
    optional: true,
    why: 'lets builds use https',
  },
  {
    part: 'PostgreSQL',
    there: hasPostgresServer,
    package: 'postgresql',
    optional: true,
    tests: true,
    why: 'is the database of tests with two control planes; Berth itself works without it (SQLite)',
  },
  {
    part: 'faketime',
    program: 'faketime',
    package: 'faketime',
    optional: true,
    tests: true,
    why: 'sets an agent’s clock wrong by an hour in the fault suite',
  },
  {
    part: 'bindfs',
    program: 'bindfs',
    package: 'bindfs',
    optional: true,
    tests: true,
    why: 'mounts a share that tests hang, kill and unmount',
  },
  {
    part: 'ssh server',
    file: '/usr/sbin/sshd',
    package: 'openssh-server',
    optional: true,
    tests: true,
    service: true,
    why: 'is the git server of the tests of deploy keys and host keys',
  },
  {
    part: 'curl',
    program: 'curl',
    package: 'curl',
    optional: true,
    tests: true,
    why: 'installs the command line as the examples of CI pipelines do',
  },
  ...['zsh', 'fish'].map((shell) => ({
    part: shell,
    program: shell,
    package: shell,
    optional: true,
    tests: true,
    why: 'is a shell in which the tests press Tab',
  })),
  {
    part: 'Chromium',
    program: 'chromium-headless-shell',
    package: 'chromium-headless-shell',
    there: () => findProgram('chromium-headless-shell') ?? findProgram('chromium'),
    optional: true,
    tests: true,
    why: 'is the browser of the sign-in tests',
  },
];

/** Searches the server's programs, which Debian keeps outside PATH in a folder for each version. */
function hasPostgresServer() {
  const debian = '/usr/lib/postgresql';
  const versions = existsSync(debian) ? readdirSync(debian) : [];
  return (
    versions.some((version) => existsSync(join(debian, version, 'bin', 'initdb'))) ||
    findProgram('initdb') !== undefined
  );
}

const aptOptions = [
  // Another apt (unattended-upgrades) may be running.
  '-o',
  'DPkg::Lock::Timeout=120',
  '-o',
  'Dpkg::Options::=--force-confold',
];

/** Returns the parts that are missing. */
export function missingSystemParts(engineAnswers, forTests) {
  return systemParts.filter((part) => {
    if (part.tests === true && !forTests) return false;
    if (part.engine === true && engineAnswers) return false;
    if (part.there !== undefined) return !part.there();
    return part.file === undefined
      ? findProgram(part.program) === undefined
      : !existsSync(part.file);
  });
}

export function isDebian() {
  return findProgram('apt-get') !== undefined && findProgram('dpkg') !== undefined;
}

/** Whether set-up may install the part here without starting a service. */
export const isHarmless = (part) => part.service !== true || !existsSync('/run/systemd/system');

/** Whether this process can install Debian packages. */
export function mayInstall() {
  return process.platform === 'linux' && process.getuid?.() === 0 && isDebian();
}

export function aptEnvironment() {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' };
  // Without an init system, a package's start script would run the engine here, in the machine's
  // own network, and no supervisor would stop it. invoke-rc.d starts nothing in runlevel 1.
  if (!existsSync('/run/systemd/system')) env.RUNLEVEL = '1';
  return env;
}

/**
 * Installs the packages of `parts` and prints what it does. A failure is printed too, and the part
 * is still missing afterwards.
 */
export async function installSystemParts(parts) {
  const packages = [...new Set(parts.map((part) => part.package))];
  printLine(`installing missing system packages:`);
  for (const name of packages)
    printLine(`  ${name.padEnd(16)} ${parts.find((part) => part.package === name).why}`);
  await step('apt-get update', () => aptGet(['update', '-qq']));
  // Newer Debian has the client in a separate package.
  if (packages.includes('docker.io') && (await run(['apt-cache', 'show', 'docker-cli'])).ok)
    packages.push('docker-cli');
  const available = await availableOf(packages);
  for (const name of packages)
    if (!available.includes(name)) printLine(`  ${name} is in no package source of this machine`);
  const install = () => aptGet(['install', '-y', '-qq', '--no-install-recommends', ...available]);
  await step(`apt-get install ${available.join(' ')}`, () =>
    available.includes('postgresql') ? withoutCluster(install) : install(),
  );
}

/** Returns the packages that the sources have: apt-get installs nothing if it does not know one. */
async function availableOf(packages) {
  const policy = await run(['apt-cache', 'policy', ...packages]);
  const known = new Map(
    [...policy.output.matchAll(/^(\S+):\n.*\n\s+Candidate: (.+)$/gm)].map(([, name, candidate]) => [
      name,
      candidate,
    ]),
  );
  return packages.filter((name) => (known.get(name) ?? '(none)') !== '(none)');
}

/**
 * Installs PostgreSQL without a database cluster. Debian's package creates a cluster at once and
 * starts it, now and at every boot, but Berth needs only the program. The package's own setting
 * prevents the cluster during the installation, and is then restored.
 */
async function withoutCluster(install) {
  const folder = '/etc/postgresql-common';
  const file = join(folder, 'createcluster.conf');
  // The administrator has made a choice already.
  if (existsSync(file)) return install();
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, 'create_main_cluster = false\n');
  try {
    return await install();
  } finally {
    // dpkg kept our file and put the package's file beside it.
    rmSync(file, { force: true });
    const theirs = ['ucf-dist', 'dpkg-dist']
      .map((end) => `${file}.${end}`)
      .find((path) => existsSync(path));
    if (theirs !== undefined) renameSync(theirs, file);
  }
}

async function aptGet(args) {
  const result = await run(['apt-get', ...aptOptions, ...args], {
    env: aptEnvironment(),
    deadlineMs: 900_000,
    patience: `running apt-get ${args[0]}`,
  });
  // `update` fails when a third party's source does not answer, although Debian's own lists
  // arrived: the installation decides.
  if (!result.ok)
    printLine(`  apt-get ${args[0]} ended with ${result.code}:\n${lastLines(result.output)}`);
  return result.ok;
}

/** Returns the message about parts that are missing here. */
export function explainMissing(parts) {
  return parts.map((part) => ({ part: part.part, why: part.why, how: howToGet(part) }));
}

function howToGet(part) {
  if (isDebian()) return `as root: apt-get install --no-install-recommends ${part.package}`;
  if (part.package === 'docker.io')
    return 'install Docker Engine (docs.docker.com/engine/install) and start it';
  return `install ${part.program ?? part.package} with your system's package manager`;
}
