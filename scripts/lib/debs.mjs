// Unpacks single programs of Debian packages into .tools. Nothing in the system changes and no
// service is installed. A program can come from a newer Debian without adding that Debian to the
// machine's sources.
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { pluginsDir, toolsDir } from './places.mjs';
import { findProgram, lastLines, run } from './run.mjs';
import { printLine, step } from './progress.mjs';
import { aptEnvironment, isDebian } from './system.mjs';

const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg';
const leastBuildx = [0, 13];

const pluginFolders = [
  pluginsDir,
  '/usr/local/lib/docker/cli-plugins',
  '/usr/local/libexec/docker/cli-plugins',
  '/usr/lib/docker/cli-plugins',
  '/usr/libexec/docker/cli-plugins',
];
const pluginPlaces = (name) => pluginFolders.map((folder) => join(folder, name));

/**
 * Returns the version of a usable buildx (0.13 or newer), or undefined. Searches the same folders
 * as a private docker configuration.
 */
export async function installedBuildx() {
  for (const place of pluginPlaces('docker-buildx')) {
    if (!existsSync(place)) continue;
    const answer = await run([place, 'version'], { deadlineMs: 10_000 });
    const found = /(\d+)\.(\d+)\.\d+/.exec(answer.stdout);
    if (!answer.ok || found === null) continue;
    const [major, minor] = [Number(found[1]), Number(found[2])];
    if (major > leastBuildx[0] || minor >= leastBuildx[1]) return found[0];
  }
  return undefined;
}

/** Fetches buildx. @returns what is missing, or undefined on success */
export async function provideBuildx() {
  return step(
    'fetching docker buildx into .tools (builds images; structured progress needs 0.13 or newer)',
    async () => {
      const target = join(pluginsDir, 'docker-buildx');
      for (const suite of ['forky', 'trixie', undefined]) {
        const failure = await programFromDeb('docker-buildx', 'docker-buildx', target, suite);
        if (failure !== undefined)
          printLine(`  ${suite ?? "the machine's own sources"}: ${failure}`);
        else if ((await installedBuildx()) !== undefined) return undefined;
        else rmSync(target, { force: true }); // too old, or not runnable on this machine
      }
      return missingBuildx();
    },
  );
}

export function missingBuildx() {
  return {
    part: 'buildx',
    why: 'builds images',
    how:
      'install the docker buildx plugin, 0.13 or newer (Debian: docker-buildx, Docker: ' +
      'docker-buildx-plugin)',
  };
}

const leastCompose = [2, 24];

/** Returns the version of a usable docker compose (2.24 or newer), or undefined. */
export async function installedCompose() {
  for (const place of pluginPlaces('docker-compose')) {
    if (!existsSync(place)) continue;
    const answer = await run([place, 'version', '--short'], { deadlineMs: 10_000 });
    const [major, minor] = (/(\d+)\.(\d+)\./.exec(answer.stdout) ?? []).slice(1).map(Number);
    if (
      answer.ok &&
      (major > leastCompose[0] || (major === leastCompose[0] && minor >= leastCompose[1]))
    )
      return answer.stdout.trim();
  }
  return undefined;
}

/** Fetches docker compose. @returns what is missing, or undefined on success */
export async function provideCompose() {
  return step(
    'fetching docker compose into .tools (runs deploy/compose.yml in npm run test:install)',
    async () => {
      const target = join(pluginsDir, 'docker-compose');
      for (const suite of ['trixie', 'forky', undefined]) {
        const failure = await programFromDeb('docker-compose', 'docker-compose', target, suite);
        if (failure !== undefined)
          printLine(`  ${suite ?? "the machine's own sources"}: ${failure}`);
        else if ((await installedCompose()) !== undefined) return undefined;
        else rmSync(target, { force: true });
      }
      return missingCompose();
    },
  );
}

export function missingCompose() {
  return {
    part: 'docker compose',
    why: 'npm run test:install tests deploy/compose.yml with it; without it that test is skipped',
    how:
      'install the docker compose plugin, 2.24 or newer (Debian 13: docker-compose, Docker: ' +
      'docker-compose-plugin)',
  };
}

const registryPlace = join(toolsDir, 'docker-registry');

export function installedRegistry() {
  return (
    existsSync(registryPlace) ||
    findProgram('docker-registry') !== undefined ||
    findProgram('registry') !== undefined
  );
}

/**
 * Fetches docker-registry. Its package would start a service on port 5000 of the machine, so only
 * the program is unpacked.
 */
export async function provideRegistry() {
  return step(
    'fetching docker-registry into .tools (stores the images that are built)',
    async () => {
      const failure = await programFromDeb(
        'docker-registry',
        'docker-registry',
        registryPlace,
        undefined,
      );
      if (failure === undefined) return undefined;
      printLine(`  ${failure}`);
      return missingRegistry();
    },
  );
}

export function missingRegistry() {
  return {
    part: 'registry',
    why: 'stores the images that are built',
    how:
      'install the CNCF distribution registry (Debian: docker-registry) so that ' +
      '`docker-registry` or `registry` is on PATH',
  };
}

const promtoolPlace = join(toolsDir, 'promtool');
const prometheusPlace = join(toolsDir, 'prometheus');

/** Both programs are in one Debian package. */
export function installedPromtool() {
  const has = (place, name) => existsSync(place) || findProgram(name) !== undefined;
  return has(promtoolPlace, 'promtool') && has(prometheusPlace, 'prometheus');
}

/**
 * Fetches promtool and Prometheus. Their Debian package would start a service on port 9090, so only
 * the programs are unpacked.
 */
export async function providePromtool() {
  return step(
    'fetching Prometheus and promtool into .tools (tests check metrics and fire alerts with them)',
    async () => {
      for (const suite of [undefined, 'trixie']) {
        const failure = await programsFromDeb(
          'prometheus',
          { promtool: promtoolPlace, prometheus: prometheusPlace },
          suite,
        );
        if (failure !== undefined)
          printLine(`  ${suite ?? "the machine's own sources"}: ${failure}`);
        else if ((await run([promtoolPlace, '--version'], { deadlineMs: 10_000 })).ok)
          return undefined;
        else rmSync(promtoolPlace, { force: true }); // needs a newer system
      }
      return missingPromtool();
    },
  );
}

export function missingPromtool() {
  return {
    part: 'promtool',
    why:
      'tests check metrics with it and fire the alerts with Prometheus; without both those tests ' +
      'are skipped',
    how: 'put promtool and prometheus 2.42 or newer on PATH (Debian: the package prometheus)',
  };
}

const pebblePrograms = ['pebble', 'pebble-challtestsrv'];

export function installedPebble() {
  return pebblePrograms.every(
    (name) => existsSync(join(toolsDir, name)) || findProgram(name) !== undefined,
  );
}

/** Fetches Pebble and its DNS server, which are one package. */
export async function providePebble() {
  return step('fetching pebble into .tools (the certificate authority of the tests)', async () => {
    for (const suite of [undefined, 'trixie', 'bookworm']) {
      const targets = Object.fromEntries(
        pebblePrograms.map((name) => [name, join(toolsDir, name)]),
      );
      const failure = await programsFromDeb('pebble', targets, suite);
      if (failure === undefined) return undefined;
      printLine(`  ${suite ?? "the machine's own sources"}: ${failure}`);
    }
    return missingPebble();
  });
}

export function missingPebble() {
  return {
    part: 'Pebble',
    why: 'is the certificate authority of the https tests; without it they are skipped',
    how: 'put pebble 2.4 or newer and pebble-challtestsrv on PATH (Debian: the package pebble)',
  };
}

/** Whether packages can be fetched and unpacked here (root is not needed). */
export function canUnpackDebs() {
  return process.platform === 'linux' && isDebian();
}

const programFromDeb = (packageName, programName, target, suite) =>
  programsFromDeb(packageName, { [programName]: target }, suite);

/**
 * `targets`: path by program. Returns why it failed, or undefined. `suite` undefined: uses the
 * machine's own sources.
 */
async function programsFromDeb(packageName, targets, suite) {
  if (suite !== undefined && !existsSync(keyring)) return `no ${keyring} to verify the signature`;
  const mirror = suite === undefined ? undefined : debianMirror();
  if (suite !== undefined && mirror === undefined)
    return "this machine's package sources name no Debian mirror";
  const work = join(toolsDir, `deb-${process.pid}`);
  rmSync(work, { recursive: true, force: true });
  for (const folder of ['lists/partial', 'cache/archives/partial', 'unpacked'])
    mkdirSync(join(work, folder), { recursive: true });
  try {
    let options = ['-o', 'APT::Sandbox::User=root'];
    if (suite !== undefined) {
      const list = join(work, 'sources.list');
      writeFileSync(list, `deb [signed-by=${keyring}] ${mirror} ${suite} main\n`);
      options = [
        ...options,
        '-o',
        `Dir::Etc::SourceList=${list}`,
        '-o',
        'Dir::Etc::SourceParts=/dev/null',
        '-o',
        `Dir::State::Lists=${join(work, 'lists')}`,
        '-o',
        `Dir::Cache=${join(work, 'cache')}`,
        '-o',
        'Acquire::Languages=none',
        // Accepts old package lists: a mirror may have been frozen some weeks ago, and its content
        // is signed all the same.
        '-o',
        'Acquire::Check-Valid-Until=false',
        // Skips descriptions and icons for graphical package managers.
        '-o',
        'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false',
        '-o',
        'Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false',
      ];
    }
    // The machine's own lists may be empty (a fresh container) or old.
    if (suite !== undefined || process.getuid?.() === 0) {
      const updated = await run(['apt-get', ...options, 'update', '-qq'], {
        env: aptEnvironment(),
        deadlineMs: 300_000,
        patience: 'fetching package lists',
      });
      if (!updated.ok && suite !== undefined)
        return `cannot fetch package lists:\n${lastLines(updated.output, 3)}`;
    }
    const fetched = await run(['apt-get', ...options, 'download', '-qq', packageName], {
      cwd: work,
      env: aptEnvironment(),
      deadlineMs: 300_000,
      patience: `fetching ${packageName}`,
    });
    const deb = readdirSync(work).find((name) => name.endsWith('.deb'));
    if (!fetched.ok || deb === undefined)
      return `cannot fetch package ${packageName}:\n${lastLines(fetched.output, 3)}`;
    const unpacked = await run(['dpkg', '-x', join(work, deb), join(work, 'unpacked')]);
    if (!unpacked.ok) return `cannot unpack ${deb}: ${unpacked.output.trim()}`;
    const files = readdirSync(join(work, 'unpacked'), { recursive: true, withFileTypes: true });
    for (const [name, target] of Object.entries(targets)) {
      const program = files.find(
        (entry) =>
          entry.isFile() &&
          entry.name === name &&
          /(bin|cli-plugins)$/.test(entry.parentPath ?? entry.path),
      );
      if (program === undefined) return `${deb} does not contain ${name}`;
      mkdirSync(dirname(target), { recursive: true });
      // Renaming replaces the file safely: a running program cannot be overwritten.
      copyFileSync(join(program.parentPath ?? program.path, program.name), `${target}.new`);
      chmodSync(`${target}.new`, 0o755);
      renameSync(`${target}.new`, target);
    }
    return undefined;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/**
 * Returns the mirror in this machine's sources, so that its proxy or local mirror is used;
 * undefined when there is none.
 */
function debianMirror() {
  const folder = '/etc/apt/sources.list.d';
  const files = [
    '/etc/apt/sources.list',
    ...(existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : []),
  ];
  for (const file of files) {
    if (!existsSync(file) || !/\.(list|sources)$/.test(file)) continue;
    const found = /^(?:URIs:\s*|deb\s+(?:\[[^\]]*\]\s+)?)(https?:\/\/\S+\/debian)\/?(?:\s|$)/m.exec(
      readFileSync(file, 'utf8'),
    );
    if (found !== null) return found[1];
  }
  return undefined;
}
