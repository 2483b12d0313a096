// Starts a process of Berth, or its command line, in this process. bin/berth uses it in a checkout, lib/berth.js in an artefact
// (scripts/build.mjs). Plain JavaScript: it parses the arguments also on a Node that cannot run TypeScript.
import module from 'node:module';
import { pathToFileURL } from 'node:url';

const PROCESSES = {
  'control-plane': 'API for people, agents and the reverse proxy; the scheduler; the database',
  gateway: 'logins (/_oauth/…) and access checks (/verify)',
  agent: 'builds or runs containers on one machine, depending on NODE_ROLE',
  proxy: 'reverse proxy for development; production uses Traefik',
  relay: 'serves the last configuration to the reverse proxy while the control plane is down',
};

/** Commands for the operator on a machine of Berth, and their packages. `main` of each takes the arguments, returns the exit code. */
export const ON_THE_MACHINE = {
  admin: 'control-plane',
  backup: 'control-plane',
  restore: 'control-plane',
  export: 'control-plane',
  import: 'control-plane',
  schema: 'control-plane',
  rotation: 'control-plane',
  install: 'operator',
  doctor: 'operator',
  upgrade: 'operator',
  rotate: 'operator',
};

/**
 * @typedef {object} Place where the programs are
 * @property {(name: string) => string | undefined} processEntry module of a process; undefined if the place does not have it
 * @property {(name: string) => string} commandEntry module of a command for the operator
 * @property {string} [install] command that installs missing packages, in a checkout
 * @property {() => {path: string, cache?: string | undefined}} commandLine module of the command line; `cache`: folder for its compile cache
 */

/** Whether the arguments start a process that runs until it is stopped. */
export const startsProcess = (args, place) =>
  Object.hasOwn(PROCESSES, args[0] ?? '') && place.processEntry(args[0]) !== undefined;

/** @returns true if the arguments were answered without a program: help, or a mistake */
export function answersWithoutProgram(args, place) {
  const [name, ...rest] = args;
  if (!startsProcess(args, place) || rest.length === 0) return false;
  if (rest.includes('--help') || rest.includes('-h'))
    console.log(
      `berth ${name}: ${PROCESSES[name]}\nConfigured only by environment variables: docs/settings.md`,
    );
  else refuse(`berth ${name}: takes no arguments; set environment variables (docs/settings.md)`);
  return true;
}

/** Runs what the arguments say. Needs a Node that can run the place's programs. */
export async function launch(args, place) {
  const [name, ...rest] = args;
  if (startsProcess(args, place)) return start(name, place.processEntry(name), place);
  const isHelp = name === 'help' && Object.hasOwn(ON_THE_MACHINE, rest[0] ?? '');
  const command = isHelp ? rest[0] : name;
  if (Object.hasOwn(ON_THE_MACHINE, command ?? '')) {
    const { main } = await load(place.commandEntry(command), place);
    process.exitCode = await main(isHelp ? ['--help'] : rest);
    return;
  }
  const { path, cache } = place.commandLine();
  if (cache !== undefined) module.enableCompileCache?.(cache);
  const { main } = await load(path, place);
  await main(args);
}

async function start(name, entry, place) {
  // Until the program has its own handler, SIGHUP (reload) would end it. The proxy for development has none.
  if (name !== 'proxy') process.on('SIGHUP', () => {});
  const { main } = await load(entry, place);
  try {
    await main();
  } catch (error) {
    // Compared by name: the class is not loaded here.
    if (error?.name === 'SettingsError') refuse(`berth ${name}: ${error.message}`);
    console.error(error);
    process.exit(1);
  }
}

async function load(path, { install }) {
  try {
    return await import(pathToFileURL(path).href);
  } catch (error) {
    if (error?.code !== 'ERR_MODULE_NOT_FOUND' || install === undefined) throw error;
    console.error(`berth: ${error.message}\nTo install what is missing, run: ${install}`);
    process.exit(1);
  }
}

/** Exits with code 2 for wrong usage and wrong settings. */
function refuse(message) {
  console.error(message);
  process.exit(2);
}
