#!/usr/bin/env node
// npm run setup: makes a fresh clone ready. Runs on Node 20 with nothing installed. It prints what
// it does and why, and it is silent and quick when there is nothing to do. It names what this
// machine cannot get and continues with the rest.
import { existsSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { bundleIsCurrent, provideBundle } from './lib/bundle.mjs';
import {
  canUnpackDebs,
  installedBuildx,
  installedCompose,
  installedPebble,
  installedPromtool,
  installedRegistry,
  missingBuildx,
  missingCompose,
  missingPebble,
  missingPromtool,
  missingRegistry,
  provideBuildx,
  provideCompose,
  providePebble,
  providePromtool,
  provideRegistry,
} from './lib/debs.mjs';
import { depsAreCurrent, provideDeps } from './lib/deps.mjs';
import { engineAnswers, whyNoOwnEngine } from './lib/engine.mjs';
import { answerHelp } from './lib/help.mjs';
import { withLock } from './lib/lock.mjs';
import { installedNode, provideNode } from './lib/node.mjs';
import { missingPacked, packedIsCurrent, providePacked } from './lib/packed.mjs';
import { nodeProgram, toolsDir } from './lib/places.mjs';
import { findProgram } from './lib/run.mjs';
import { printLine, step } from './lib/progress.mjs';
import { installedDeviceEngine, provideDeviceEngine } from './lib/device-engine.mjs';
import { installedS3Server, provideS3Server } from './lib/s3-server.mjs';
import {
  explainMissing,
  installSystemParts,
  isHarmless,
  mayInstall,
  missingSystemParts,
} from './lib/system.mjs';

/**
 * @typedef {{part: string, why: string, how: string}} Missing
 * @typedef {object} Capabilities what this machine can do
 * @property {string | undefined} node version of the Node that runs Berth
 * @property {string} nodeProgram its path
 * @property {boolean} deps whether node_modules matches the lockfile
 * @property {'answers' | 'can-start' | 'none'} engine
 * @property {string | undefined} buildx version
 * @property {string | undefined} compose version
 * @property {boolean} registry
 * @property {boolean} promtool
 * @property {boolean} pebble
 * @property {boolean} git
 * @property {boolean} rsync
 * @property {boolean} outward whether builds in a private engine reach the internet
 * @property {string | undefined} traefik path
 * @property {Missing[]} missing parts that could not be installed, what they are for, and how to
 *   get them
 */

/**
 * Installs what is missing and returns what this machine can do.
 * @param {{quiet?: boolean, system?: boolean, tests?: boolean, s3?: boolean, devices?: boolean}}
 *   [options] quiet: do not print what is missing; system: false installs no system packages; tests:
 *   install what only tests use, too; s3: build the S3 server of the tests, too; devices: build an
 *   engine with devices, too
 * @returns {Promise<Capabilities>}
 */
export async function setup(options = {}) {
  const before = await inspect(options);
  const todo = plan(before, options);
  const failed = todo.length === 0 ? [] : await withLock(toolsDir, () => provide(options));
  const after = todo.length === 0 ? before : await inspect(options);
  const capabilities = await describe(after, failed, options);
  if (options.quiet !== true)
    for (const { part, why, how } of capabilities.missing)
      printLine(`missing: ${part} (${why}). To get it: ${how}`);
  return capabilities;
}

/** Returns what is installed now. Changes nothing. */
async function inspect(options) {
  const [node, answers, buildx, compose] = await Promise.all([
    installedNode(),
    engineAnswers(),
    installedBuildx(),
    installedCompose(),
  ]);
  return {
    node,
    answers,
    buildx,
    compose,
    deps: node !== undefined && depsAreCurrent(node),
    system: missingSystemParts(answers, options.tests === true),
    registry: installedRegistry(),
    promtool: installedPromtool(),
    pebble: installedPebble(),
    packed: packedIsCurrent(),
  };
}

/** Returns the steps to do, in order. Each needs the results of the steps before it. */
function plan(seen, options) {
  const steps = [];
  if (seen.node === undefined) steps.push('node');
  if (!seen.deps) steps.push('deps');
  if (!seen.deps || !bundleIsCurrent()) steps.push('bundle');
  if (options.tests === true && !seen.packed) steps.push('packed');
  if (options.s3 === true && !installedS3Server()) steps.push('s3');
  if (options.devices === true && !installedDeviceEngine()) steps.push('devices');
  if (options.system !== false) {
    if (seen.system.some(isHarmless) && mayInstall()) steps.push('system');
    if (seen.buildx === undefined && canUnpackDebs()) steps.push('buildx');
    if (!seen.registry && canUnpackDebs()) steps.push('registry');
    if (options.tests === true && seen.compose === undefined && canUnpackDebs())
      steps.push('compose');
    if (options.tests === true && !seen.promtool && canUnpackDebs()) steps.push('promtool');
    if (options.tests === true && !seen.pebble && canUnpackDebs()) steps.push('pebble');
  }
  return steps;
}

async function provide(options) {
  // Checked again, because another set-up may have done it while this one waited for the lock.
  const seen = await inspect(options);
  const failed = [];
  const work = {
    node: provideNode,
    deps: async () => {
      const versions = await installedNode();
      return versions === undefined
        ? {
            part: 'deps',
            why: 'the packages Berth is made of',
            how: 'install Node first (see above)',
          }
        : provideDeps(versions);
    },
    bundle: () => step('bundling the command line, so that it starts quickly', provideBundle),
    system: () => installSystemParts(seen.system.filter(isHarmless)),
    buildx: provideBuildx,
    registry: provideRegistry,
    compose: provideCompose,
    promtool: providePromtool,
    pebble: providePebble,
    packed: providePacked,
    s3: provideS3Server,
    devices: provideDeviceEngine,
  };
  for (const name of plan(seen, options)) {
    const missing = await work[name]();
    if (missing?.part !== undefined) failed.push(missing);
  }
  return failed;
}

async function describe(seen, failed, options) {
  const whyNot = seen.answers ? undefined : await whyNoOwnEngine();
  const missing = [...failed, ...explainMissing(seen.system)];
  const add = (entry) => {
    if (!missing.some(({ part }) => part === entry.part)) missing.push(entry);
  };
  if (seen.buildx === undefined) add(missingBuildx());
  if (!seen.registry) add(missingRegistry());
  if (options.tests === true && seen.compose === undefined) add(missingCompose());
  if (options.tests === true && !seen.promtool) add(missingPromtool());
  if (options.tests === true && !seen.pebble) add(missingPebble());
  if (options.tests === true) for (const entry of missingPacked()) add(entry);
  if (whyNot !== undefined) {
    add({
      part: 'container engine',
      why: `builds and runs containers; no engine answers and none can be started: ${whyNot}`,
      how: 'start Docker (or set DOCKER_HOST), or run this as root on Debian or Ubuntu',
    });
  }
  const engine = seen.answers ? 'answers' : whyNot === undefined ? 'can-start' : 'none';
  const named = process.env.TRAEFIK_BIN;
  return {
    node: seen.node?.node,
    nodeProgram,
    deps: seen.deps,
    engine,
    buildx: seen.buildx,
    compose: seen.compose,
    registry: seen.registry,
    promtool: seen.promtool,
    pebble: seen.pebble,
    git: findProgram('git') !== undefined,
    rsync: findProgram('rsync') !== undefined,
    outward: seen.answers || findProgram('slirp4netns') !== undefined,
    // Set-up never fetches these; it uses them where they exist.
    traefik: named !== undefined && existsSync(named) ? named : findProgram('traefik', [toolsDir]),
    missing,
  };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  answerHelp('setup.mjs');
  const capabilities = await setup({
    tests: true,
    s3: process.argv.includes('--s3'),
    devices: process.argv.includes('--devices'),
  });
  if (process.argv.includes('--json'))
    process.stdout.write(`${JSON.stringify(capabilities, null, 2)}\n`);
  process.exitCode = capabilities.node === undefined || !capabilities.deps ? 1 : 0;
}
