/** `berth install`: writes the settings and secrets of this machine, and starts the units. */
import { existsSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { basename } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { askSecret, askYes, canAsk } from '../lib/ask.ts';
import {
  type Collector,
  complain,
  createCollector,
  print,
  Problem,
  runCommand,
} from '../lib/command.ts';
import { ETC, type Owner, parseEnv, readPlain, readText } from '../lib/etc-files.ts';
import { dataFolder } from '../rotate/copies.ts';
import { osRelease, requireRoot, userNamed } from '../lib/machine.ts';
import { ACME_CHALLENGES, acmeCaServer, type AcmeChallenge } from '../lib/traefik-config.ts';
import { apply, type Change, compare } from './changes.ts';
import { check, checkCompose, needsJoinToken } from './checks.ts';
import {
  composeEnv,
  composeProblem,
  engineGid,
  startCompose,
  wantedForCompose,
} from './compose.ts';
import { type Options, parseOptions, USAGE } from './options.ts';
import { packageChange } from './package-file.ts';
import { composeSettings, ENV_FILES, type Settings, settingsOf } from './settings.ts';
import { shipped } from './shipped.ts';
import { start } from './start.ts';
import { type Extras, PACKAGE_DIR, SECRETS, type Users, wantedFor } from './wanted.ts';

export const runInstall = (args: string[]): Promise<number> =>
  runCommand('install', USAGE, args, () => install(args));

async function install(args: string[]): Promise<number> {
  const options = parseOptions(args);
  const { values } = options;
  requireRoot(`install ${options.target}`);
  if (values.compose) return installCompose(options);
  const settings = await settingsOf(options);
  const { problems, warnings } = await check(settings, values.traefik);
  const users = usersOf();
  if ('problem' in users) problems.push(users.problem);
  const isDry = values['dry-run'];
  if (problems.length > 0 && !isDry)
    throw new Problem(`nothing was changed:\n${problems.map((line) => `  - ${line}`).join('\n')}`);
  const all = createCollector();
  const extras = await extrasOf(options, settings, all);
  if (!isDry && all.problems.length > 0) throw new WrongUsage(all.problems.join('\n  '));
  problems.push(...all.problems);
  // A dry run prints the problems and continues.
  for (const line of isDry ? problems : []) print(`problem: ${line}`);
  if ('problem' in users) {
    for (const line of warnings) complain(`warning: ${line}`);
    print('next: install the package, then run this again: it lists what it would write');
    return 1;
  }
  const { changes, kept } = await compare(wantedFor(settings, { ...extras, users }), {
    path: `${ETC}/.shipped`,
    access: { mode: 0o640, uid: 0, gid: users.berth.gid },
  });
  if (settings.parts.has('control-plane')) {
    const { change, warning } = await packageChange(PACKAGE_DIR, values.package);
    if (change !== undefined) changes.push(change);
    if (warning !== undefined) warnings.push(warning);
  }
  for (const line of kept) print(`kept: ${line}`);
  if (isDry) {
    for (const { says } of changes) print(`would write: ${says}`);
    if (changes.length === 0) print('nothing to change');
  } else if (!(await write(changes, values.yes))) return 1;
  for (const line of warnings) complain(`warning: ${line}`);
  if (isDry) return problems.length === 0 ? 0 : 1;
  if (!values.start) {
    print(`next: berth install ${options.target} --start`);
    return 0;
  }
  await start(settings);
  summary(settings);
  return 0;
}

async function installCompose({ values }: Options): Promise<number> {
  const settings = await composeSettings(values, composeEnv());
  const { challenge, server } = acmeOf(values['acme-challenge'], values['acme-ca-server']);
  const problem = await composeProblem();
  const { problems, warnings } = await checkCompose(settings.baseDomain);
  if (problem !== undefined) problems.push(problem);
  for (const line of values['dry-run'] ? problems : []) print(`problem: ${line}`);
  if (problems.length > 0 && !values['dry-run'])
    throw new Problem(`nothing was changed:\n${problems.map((line) => `  - ${line}`).join('\n')}`);
  const wanted = wantedForCompose({
    ...settings,
    acmeCaServer: server,
    acmeChallenge: challenge,
    engineGid: engineGid(),
  });
  const { changes, kept } = await compare(wanted, {
    path: `${ETC}/.shipped`,
    access: { mode: 0o640, uid: 0, gid: 0 },
  });
  for (const line of kept) print(`kept: ${line}`);
  for (const line of warnings) complain(`warning: ${line}`);
  if (values['dry-run']) {
    for (const { says } of changes) print(`would write: ${says}`);
    if (changes.length === 0) print('nothing to change');
    return problems.length === 0 ? 0 : 1;
  }
  if (!(await write(changes, values.yes))) return 1;
  if (values.start) await startCompose(settings.baseDomain);
  else print('next: berth install all --compose --start');
  return 0;
}

/** Asks and writes the changes. Returns false if the operator declines. */
async function write(changes: readonly Change[], yes: boolean): Promise<boolean> {
  if (changes.length === 0) {
    print('nothing to change');
    return true;
  }
  if (!yes && canAsk()) {
    for (const { says } of changes) print(`to write: ${says}`);
    if (
      !(await askYes(
        `Write ${changes.length === 1 ? 'this change' : `these ${changes.length} changes`}?`,
      ))
    )
      return false;
  }
  apply(changes, (says) => print(`wrote: ${says}`));
  return true;
}

/** Returns the users that the package creates. `find` looks up a user of this machine. */
export function usersOf(
  find: (name: string) => Owner | undefined = userNamed,
): Users | { problem: string } {
  const [berth, gateway, proxy, registry] = [
    find('berth'),
    find('berth-gateway'),
    find('berth-proxy'),
    find('berth-registry'),
  ];
  if (berth !== undefined && gateway !== undefined && proxy !== undefined && registry !== undefined)
    return { root: { uid: 0, gid: 0 }, berth, gateway, proxy, registry };
  const missing = Object.entries({
    berth,
    'berth-gateway': gateway,
    'berth-proxy': proxy,
    'berth-registry': registry,
  }).flatMap(([name, user]) => (user === undefined ? [name] : []));
  const users = missing.length === 1 ? `user ${missing[0]} is` : `users ${missing.join(', ')} are`;
  return {
    problem:
      `the ${users} missing on ${osRelease().name}: install the package of Berth, which makes ` +
      'them',
  };
}

/** Reads further inputs. `all` collects the problems of the options and the secrets. */
async function extrasOf(
  { values }: Options,
  settings: Settings,
  all: Collector,
): Promise<Omit<Extras, 'users'>> {
  const { challenge, server } = await all.of(
    () => acmeOf(values['acme-challenge'], values['acme-ca-server']),
    {},
  );
  const needsToken = values['join-token-file'] !== undefined || needsJoinToken(settings);
  const hasOwnPlane = settings.parts.has('control-plane');
  if (hasOwnPlane && values['join-token-file'] !== undefined)
    all.problems.push(
      '--join-token-file is for another machine: the agents of this one use AGENT_SECRET',
    );
  const passwordFile = values['registry-password-file'];
  return {
    shipped,
    acmeCaServer: server,
    acmeChallenge: challenge,
    traefik: values.traefik,
    registryUser: values['registry-user'],
    registryPassword: await all.of(
      () => secretFrom('--registry-password-file', passwordFile, 'Password for the registry'),
      undefined,
    ),
    gatewaySecret:
      settings.parts.has('gateway') && !hasOwnPlane
        ? await all.of(() => gatewaySecret(values['gateway-secret-file']), undefined)
        : undefined,
    joinToken:
      needsToken && !hasOwnPlane
        ? await all.of(() => joinToken(values['join-token-file']), undefined)
        : undefined,
    nodeName: values.name,
    proxyAddresses: values['proxy-address'],
    ownAddress:
      settings.parts.has('deploy') && !hasOwnPlane
        ? await ownAddress(settings.controlPlane)
        : undefined,
    ...stateOf(parseEnv(readText(ENV_FILES['control-plane']) ?? '')),
  };
}

/** Returns the path of the SQLite database, or undefined for another engine. */
function databaseFile(url: string | undefined, state: string): string | undefined {
  if (url === undefined) return `${state}/berth.db`;
  return url.startsWith('sqlite:') ? `${state}/${basename(url)}` : undefined;
}

/**
 * Returns the secrets and the database state that an older control plane left. `env`: its settings.
 */
export function stateOf(
  env: ReadonlyMap<string, string>,
  state = dataFolder(env),
): Pick<Extras, 'madeByControlPlane' | 'hasDatabase' | 'needsKey'> {
  const url = env.get('DATABASE_URL');
  const file = databaseFile(url, state);
  const hasFile = file !== undefined && existsSync(file);
  return {
    madeByControlPlane: (name) => readPlain(`${state}/${name}`)?.trim() || undefined,
    hasDatabase: hasFile || url !== undefined,
    // A new PostgreSQL database is empty. If SECRETS_KEY_FILE is set, an older run finished, so the
    // database can have values.
    needsKey: hasFile || (file === undefined && env.has('SECRETS_KEY_FILE')),
  };
}

function acmeOf(
  challenge: string | undefined,
  server: string | undefined,
): { challenge?: AcmeChallenge | undefined; server?: string | undefined } {
  const knownChallenge = ACME_CHALLENGES.find((one) => one === challenge);
  if (challenge !== undefined && knownChallenge === undefined)
    throw new WrongUsage(`--acme-challenge must be one of ${ACME_CHALLENGES.join(', ')}`);
  try {
    return {
      challenge: knownChallenge,
      server: server === undefined ? undefined : acmeCaServer(server),
    };
  } catch (error) {
    throw new WrongUsage(`--acme-ca-server: ${messageOf(error)}`, { cause: error });
  }
}

const MOST_SECRET = 4_096;
/**
 * Reads a secret from a file, from standard input (`-`), or from a hidden prompt. A secret is never
 * an argument, because other users can read arguments.
 */
async function secretFrom(
  flag: string,
  file: string | undefined,
  question: string,
): Promise<string | undefined> {
  if (file === undefined) return undefined;
  let text: string;
  try {
    text =
      file === '-'
        ? await (canAsk() ? askSecret(question) : fromStdin())
        : readFileSync(file, 'utf8');
  } catch (error) {
    throw error instanceof Problem
      ? error
      : new WrongUsage(`${flag}: ${messageOf(error)}`, { cause: error });
  }
  const secret = text.trim();
  if (secret === '' || secret.length > MOST_SECRET || /\s/.test(secret))
    throw new WrongUsage(
      secret === ''
        ? `${flag}: it is empty`
        : `${flag}: the secret must be one line without spaces, at most ${MOST_SECRET} characters`,
    );
  return secret;
}

async function fromStdin(): Promise<string> {
  let text = '';
  for await (const part of process.stdin.setEncoding('utf8')) {
    text += String(part);
    if (text.length > 2 * MOST_SECRET) break;
  }
  return text;
}

async function joinToken(file: string | undefined): Promise<string> {
  if (file === undefined && !canAsk())
    throw new WrongUsage(
      '--join-token-file is missing. Create a token on your own computer: berth node ' +
        'join-token --role ROLE',
    );
  const token = (await secretFrom('--join-token-file', file ?? '-', 'Join token')) ?? '';
  if (!token.startsWith('berthjoin_'))
    throw new WrongUsage('--join-token-file: this is no join token of Berth');
  return token;
}

async function gatewaySecret(file: string | undefined): Promise<string | undefined> {
  if (file === undefined && readPlain(`${SECRETS}/gateway/GATEWAY_SECRET`) === undefined)
    throw new WrongUsage(
      "--gateway-secret-file is missing: on the control plane's machine it is " +
        `${SECRETS}/control-plane/GATEWAY_SECRET`,
    );
  return secretFrom('--gateway-secret-file', file, 'GATEWAY_SECRET');
}

/**
 * Returns the local address that this machine uses to connect to the control plane. The proxy,
 * which runs beside the control plane, reaches this machine at that address.
 */
function ownAddress(url: string): Promise<string | undefined> {
  const { hostname, port, protocol } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect({
      host: hostname.replaceAll(/[[\]]/g, ''),
      port: Number(port || (protocol === 'https:' ? 443 : 80)),
      timeout: 5_000,
    });
    const end = (address: string | undefined): void => {
      socket.destroy();
      resolve(address?.replace(/^::ffff:/, ''));
    };
    socket.on('connect', () => end(socket.localAddress));
    socket.on('timeout', () => end(undefined));
    socket.on('error', () => end(undefined));
  });
}

function summary({ parts, baseDomain, admins, internalAddress }: Settings): void {
  if (!parts.has('control-plane')) {
    print('This machine belongs to Berth now: berth node list');
    return;
  }
  const password = `${SECRETS}/control-plane/ADMIN_PASSWORD`;
  print(`Berth runs: https://${baseDomain}`);
  if (existsSync(password))
    print(`first password of ${admins.split(',')[0]}: sudo cat ${password}`);
  print(`sign in on your computer: berth login https://${baseDomain}`);
  print(internalAddress === undefined ? beforeSecondMachine(baseDomain) : NEXT_MACHINE);
}

const NEXT_MACHINE =
  'the next machine: berth node join-token --role deploy, which prints the command for it';

const beforeSecondMachine = (baseDomain: string): string =>
  'before a second machine joins: berth install all --internal-address ADDRESS --start (an ' +
  'address of this machine that the other one reaches). The registry, now 127.0.0.1:5000, then ' +
  `gets the host that other machines use: https://registry.${baseDomain}`;
