#!/usr/bin/env node
// npm run test:fresh: tries this checkout on a machine without any tools. The machine is a minimal
// Debian in a folder with Node 20 and npm 10 (no git, no docker, no certificates), entered with
// namespaces and pivot_root.
//   node scripts/fresh-root.mjs [--worktree] [--keep] [-- COMMAND ARG… [--then COMMAND ARG…]]
// Default commands: `npm run demo -- --exit`, then `npm test`. --worktree: copies the working tree
// instead of cloning HEAD. Needs root on Debian. All its mounts and processes are inside namespaces
// that end with it.
import { spawn } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { answerHelp } from './lib/help.mjs';
import { root as repository, toolsDir } from './lib/places.mjs';
import { childEnvironment, findProgram, lastLines, run } from './lib/run.mjs';
import { printLine, step } from './lib/progress.mjs';

const nodeVersion = '20.20.2';
const npmVersion = '10.9.4';
const suite = 'bookworm';
/** Path of the checkout inside. */
const workPlace = '/work/berth';
const certificatesInside = '/opt/certificates.crt';

const args = process.argv.slice(2);
if (args[0] !== '--inside') answerHelp('fresh-root.mjs', args);
if (args[0] === '--inside') await inside(JSON.parse(args[1]));
else await outside();

async function outside() {
  const separator = args.indexOf('--');
  const flags = separator < 0 ? args : args.slice(0, separator);
  const commands =
    separator < 0
      ? [
          ['npm', 'run', 'demo', '--', '--exit'],
          ['npm', 'test'],
        ]
      : split(args.slice(separator + 1));
  if (process.getuid?.() !== 0) throw new Error('test:fresh needs root');
  await provideDebootstrap();
  const base = await provideBase();
  const root = mkdtempSync(join(tmpdir(), 'berth-fresh-'));
  try {
    await step('creating a fresh machine', () => layOut(base, root));
    await step(flags.includes('--worktree') ? 'copying the working tree' : 'cloning HEAD', () =>
      bringCheckout(root, flags.includes('--worktree')),
    );
    process.exitCode = await enter({ root, commands });
  } finally {
    if (flags.includes('--keep')) printLine(`kept: ${root}`);
    else rmSync(root, { recursive: true, force: true });
  }
}

/** Splits `a b --then c` into [[a, b], [c]]. */
function split(words) {
  const commands = [[]];
  for (const word of words) {
    if (word === '--then') commands.push([]);
    else commands.at(-1).push(word);
  }
  return commands.filter((command) => command.length > 0);
}

async function provideDebootstrap() {
  if (findProgram('debootstrap') !== undefined) return;
  await step('apt-get install debootstrap', () =>
    must(['apt-get', 'install', '-y', '-qq', '--no-install-recommends', 'debootstrap']),
  );
}

/** Provides the minimal Debian with Node 20. They never change, so .tools keeps them. */
async function provideBase() {
  const base = join(toolsDir, `fresh-${suite}-node-${nodeVersion}`);
  if (existsSync(base)) return base;
  const making = `${base}.${process.pid}`;
  rmSync(making, { recursive: true, force: true });
  mkdirSync(making, { recursive: true });
  try {
    await step(`debootstrap ${suite}`, () =>
      must(['debootstrap', '--variant=minbase', suite, making]),
    );
    const machine = process.arch === 'arm64' ? 'arm64' : 'x64';
    const node = await unpack(`node-linux-${machine}@${nodeVersion}`);
    copyFileSync(join(node, 'package', 'bin', 'node'), join(making, 'usr/local/bin/node'));
    const npm = await unpack(`npm@${npmVersion}`);
    cpSync(join(npm, 'package'), join(making, 'usr/local/lib/node_modules/npm'), {
      recursive: true,
    });
    for (const name of ['npm', 'npx'])
      symlinkSync(
        `../lib/node_modules/npm/bin/${name}-cli.js`,
        join(making, 'usr/local/bin', name),
      );
    for (const folder of [node, npm]) rmSync(folder, { recursive: true });
    renameSync(making, base);
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
  return base;
}

async function unpack(spec) {
  const folder = mkdtempSync(join(tmpdir(), 'berth-pack-'));
  await must(['npm', 'pack', spec, '--silent', '--pack-destination', folder], { cwd: folder });
  const [file] = readdirSync(folder);
  await must(['tar', '-xzf', join(folder, file), '-C', folder]);
  return folder;
}

async function layOut(base, root) {
  await must(['cp', '-a', `${base}/.`, root]);
  // Copies name resolution and package sources of this machine; its certificates go to a path that
  // no package uses.
  copyFileSync('/etc/resolv.conf', join(root, 'etc/resolv.conf'));
  for (const file of ['sources.list', 'sources.list.d/debian.sources']) {
    if (existsSync(`/etc/apt/${file}`))
      copyFileSync(`/etc/apt/${file}`, join(root, 'etc/apt', file));
  }
  if (!existsSync('/etc/apt/sources.list'))
    rmSync(join(root, 'etc/apt/sources.list'), { force: true });
  const trusted = certificates();
  if (trusted !== undefined) copyFileSync(trusted, join(root, certificatesInside));
}

function certificates() {
  const file = process.env.NODE_EXTRA_CA_CERTS || process.env.SSL_CERT_FILE;
  return file !== undefined && existsSync(file) ? file : undefined;
}

async function bringCheckout(root, worktree) {
  const target = join(root, workPlace);
  if (!worktree) {
    await must([
      'git',
      '-c',
      'safe.directory=*',
      'clone',
      '--quiet',
      '--no-hardlinks',
      repository,
      target,
    ]);
    return;
  }
  mkdirSync(target, { recursive: true });
  const listed = await must([
    'git',
    '-c',
    'safe.directory=*',
    '-C',
    repository,
    'ls-files',
    '-z',
    '--cached',
    '--others',
    '--exclude-standard',
  ]);
  for (const name of listed.stdout
    .split('\0')
    .filter((path) => path !== '' && existsSync(join(repository, path)))) {
    mkdirSync(dirname(join(target, name)), { recursive: true });
    cpSync(join(repository, name), join(target, name));
  }
}

/** Runs this file again in separate namespaces, as their first process. @returns the exit code */
function enter(job) {
  const unshare = [
    'unshare',
    '--mount',
    '--pid',
    '--fork',
    '--kill-child=KILL',
    '--propagation',
    'slave',
  ];
  const bound =
    findProgram('setpriv') === undefined
      ? unshare
      : ['setpriv', '--pdeathsig', 'KILL', '--', ...unshare];
  const [program, ...rest] = [
    ...bound,
    process.execPath,
    fileURLToPath(import.meta.url),
    '--inside',
    JSON.stringify(job),
  ];
  return new Promise((resolve, reject) => {
    const child = spawn(program, rest, { stdio: 'inherit', env: childEnvironment() });
    // The terminal sends Ctrl-C to the child too: it ends its commands, then this process cleans
    // up.
    for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill('SIGTERM'));
    child.once('error', reject);
    child.once('exit', (code) => resolve(code ?? 1));
  });
}

async function inside({ root, commands }) {
  // pivot_root needs a separate mount. A chroot is not enough: entering a namespace would lead back
  // out of it.
  await must(['mount', '--bind', root, root]);
  await must(['mount', '-t', 'proc', 'proc', join(root, 'proc')]);
  for (const folder of ['sys', 'dev']) {
    await must(['mount', '--rbind', `/${folder}`, join(root, folder)]);
    await must(['mount', '--make-rslave', join(root, folder)]);
  }
  // A separate /run, without the socket of an engine of this machine.
  await must(['mount', '-t', 'tmpfs', 'tmpfs', join(root, 'run')]);
  mkdirSync(join(root, 'mnt/outside'), { recursive: true });
  await must(['pivot_root', root, join(root, 'mnt/outside')]);
  process.chdir('/');
  await must(['umount', '--lazy', '/mnt/outside']);
  let failed = 0;
  for (const command of commands) {
    printLine(`fresh machine: ${command.join(' ')}`);
    const started = Date.now();
    const code = await runInside(command);
    printLine(
      `fresh machine: ${command.join(' ')}: exit ${code} after ` +
        `${((Date.now() - started) / 1000).toFixed(1)} s`,
    );
    if (code !== 0) failed = failed || code;
  }
  process.exit(failed);
}

function runInside(command) {
  const trusted = existsSync(certificatesInside)
    ? { NODE_EXTRA_CA_CERTS: certificatesInside, SSL_CERT_FILE: certificatesInside }
    : {};
  const env = {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: '/root',
    LANG: 'C.UTF-8',
    TERM: process.env.TERM ?? 'dumb',
    ...trusted,
    ...handedIn(),
  };
  return new Promise((resolve, reject) => {
    const child = spawn('/usr/bin/env', ['-C', workPlace, ...command], { stdio: 'inherit', env });
    for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? (signal === 'SIGINT' ? 130 : 143)));
  });
}

/** Returns the proxy settings, which a fresh machine in the same network would have too, and CI. */
function handedIn() {
  const names = [
    'http_proxy',
    'https_proxy',
    'no_proxy',
    'HTTP_PROXY',
    'HTTPS_PROXY',
    'NO_PROXY',
    'CI',
  ];
  return Object.fromEntries(
    names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  );
}

async function must(argv, options = {}) {
  const result = await run(argv, { ...options, patience: `running ${argv[0]}` });
  if (!result.ok)
    throw new Error(`${argv.join(' ')} ended with ${result.code}:\n${lastLines(result.output)}`);
  return result;
}
