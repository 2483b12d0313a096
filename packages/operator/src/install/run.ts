/** `berth install`: writes the settings and secrets of this machine's roles, and starts their units. */
import { parseArgs } from 'node:util';
import { domainName, emails } from '@berth/kit/config';
import { askText, askYes, canAsk } from '../lib/ask.ts';
import { complain, print, Problem, runCommand, wordsOf, WrongUsage } from '../lib/command.ts';
import { ETC } from '../lib/etc-files.ts';
import { listenerOn, osRelease, requireRoot, userNamed } from '../lib/machine.ts';
import { hasSystemd, systemctl, unitState } from '../lib/units.ts';
import { apply, compare, type Wanted } from './changes.ts';

const USAGE = `Usage: berth install control-plane --base-domain NAME --admin EMAIL [--start] [--dry-run] [--yes]

Writes the settings of this machine's roles to ${ETC}, with generated secrets, and starts their units.
Run it again at any time: it keeps secrets, and keeps what you changed by hand.

  --base-domain   projects are published at <prefix>.<NAME>
  --admin         e-mail address of the first admin
  --start         enables and starts the units
  --dry-run       prints each change and makes none
  --yes           does not ask`;

export const runInstall = (args: string[]): Promise<number> => runCommand('install', USAGE, args, () => install(args));

async function install(args: string[]): Promise<number> {
  const { positionals, values } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      'base-domain': { type: 'string' },
      admin: { type: 'string' },
      start: { type: 'boolean' },
      'dry-run': { type: 'boolean' },
      yes: { type: 'boolean' },
    },
  });
  if (positionals.length !== 1 || positionals[0] !== 'control-plane') throw new WrongUsage('name one role: control-plane');
  requireRoot('install control-plane');
  const baseDomain = await answer('Domain of the projects', '--base-domain', values['base-domain'], domainName);
  const [admin = ''] = await answer('E-mail address of the first admin', '--admin', values.admin, emails);
  const { changes, kept } = compare(await wantedOf(baseDomain, admin));
  for (const line of kept) print(`kept: ${line}`);
  if (changes.length === 0) print('nothing to change');
  if (values['dry-run'] === true) for (const { says } of changes) print(`would write: ${says}`);
  else {
    if (changes.length > 0 && values.yes !== true && canAsk() && !(await askYes(`Write ${changes.length} files?`))) return 1;
    apply(changes, (says) => print(`wrote: ${says}`));
    if (values.start === true) await start();
  }
  return 0;
}

async function wantedOf(baseDomain: string, admin: string): Promise<Wanted[]> {
  const root = { uid: 0, gid: 0 };
  const berth = await userNamed('berth');
  if (berth === undefined) throw new Problem(`the user berth is missing on ${osRelease().name}: install the package of Berth`);
  const secrets = `${ETC}/secrets/control-plane`;
  return [
    { kind: 'folder', path: ETC, access: { mode: 0o750, uid: 0, gid: berth.gid } },
    { kind: 'folder', path: `${ETC}/secrets`, access: { mode: 0o755, ...root } },
    { kind: 'folder', path: secrets, access: { mode: 0o700, ...berth } },
    { kind: 'secret', files: [{ path: `${secrets}/AGENT_SECRET`, access: { mode: 0o600, ...berth } }] },
    {
      kind: 'env',
      path: `${ETC}/control-plane.env`,
      access: { mode: 0o640, uid: 0, gid: berth.gid },
      given: { BASE_DOMAIN: baseDomain, ADMIN_EMAILS: admin },
      defaults: { AGENT_SECRET_FILE: `${secrets}/AGENT_SECRET` },
    },
  ];
}

async function start(): Promise<void> {
  if (!hasSystemd()) throw new Problem('--start needs systemd, which does not run here');
  const unit = 'berth-control-plane';
  const user = await listenerOn(8080);
  if (user !== undefined && (await unitState(unit)) !== 'active')
    throw new Problem(`port 8080 is in use by ${user}: stop it, or choose another LISTEN in ${ETC}/control-plane.env`);
  await systemctl('enable', '--now', unit);
  print(`started: ${unit}`);
}

/** A flag, or an answer in the terminal. */
async function answer<T>(question: string, flag: string, given: string | undefined, parse: (text: string) => T): Promise<T> {
  const problem = (text: string): string | undefined => {
    try {
      parse(text);
      return undefined;
    } catch (error) {
      return wordsOf(error);
    }
  };
  if (given === undefined && !canAsk()) throw new WrongUsage(`${flag} is missing, and there is no terminal in which to ask`);
  const text = given ?? (await askText(question, { problem }));
  const wrong = problem(text);
  if (wrong !== undefined) {
    complain('');
    throw new WrongUsage(`${flag}: ${wrong}`);
  }
  return parse(text);
}
