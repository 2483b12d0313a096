/**
 * Commands for the operator on the control plane's machine; `bin/berth admin …` calls `main`. They
 * open the database directly, so they work while the control plane is stopped and when nobody can
 * sign in.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { hostname, userInfo } from 'node:os';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { messageOf } from '@berth/kit/message-of';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { Email } from '@berth/wire/email';
import { Password } from '@berth/wire/user';
import { Value } from 'typebox/value';
import { asOwner, chooseSettings } from './backup/machine.ts';
import { createPasswords, PASSWORD_COST } from './api/auth/passwords.ts';
import { readDatabaseUrl } from './config.ts';
import { openRecovery } from './store/open.ts';

export const USAGE = `Usage: berth admin recover EMAIL [--password-stdin] [--end-tokens]

Makes EMAIL an enabled admin with a new password, or creates this account. Run it on the machine of the
control plane. It uses the environment; without DATABASE_URL, the settings of /etc/berth/control-plane.env if
that exists. The control plane may run.

  --password-stdin  reads the password from standard input; otherwise one is generated and printed once
  --end-tokens      also ends the API tokens and device tokens of this user

Sessions of this user at the API end in any case. The audit log records the recovery.`;

const print = (line: string): void => void process.stdout.write(`${line}\n`);
const complain = (line: string): void => void process.stderr.write(`${line}\n`);

/** Returns the exit code: 0, 1 (failed), 2 (wrong usage or settings). */
export async function main(args: string[]): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) {
    print(USAGE);
    return 0;
  }
  try {
    await recover(args);
    return 0;
  } catch (error) {
    const usage = error instanceof WrongUsage;
    // A StoreError message is written for the operator, so print it without a stack trace.
    complain(`berth admin: ${messageOf(error)}${usage ? `\n\n${USAGE}` : ''}`);
    return usage || (error instanceof Error && error.name === 'SettingsError') ? 2 : 1;
  }
}

async function recover(args: string[]): Promise<void> {
  const { email, fromStdin, endTokens } = read(args);
  chooseSettings('admin');
  const databaseUrl = readDatabaseUrl();
  const password = fromStdin
    ? (await text(process.stdin)).replace(/\r?\n$/, '')
    : randomBytes(18).toString('base64url');
  if (!Value.Check(Password, password))
    throw new WrongUsage('the password must have 10 to 1024 characters');
  const passwordHash = await createPasswords(PASSWORD_COST).hash(password);
  await asOwner(() =>
    recoverIn(databaseUrl, {
      email,
      passwordHash,
      endTokens,
      password: fromStdin ? null : password,
    }),
  );
}

type Recover = { email: string; passwordHash: string; endTokens: boolean; password: string | null };

/** `password`: the password to print after the commit; null to print none. */
async function recoverIn(
  databaseUrl: string,
  { email, passwordHash, endTokens, password }: Recover,
): Promise<void> {
  const database = await openRecovery({ databaseUrl, log: { info: () => {}, warn: () => {} } });
  try {
    const audit = {
      address: `${userInfo().username}@${hostname()}`.slice(0, 100),
      request_id: randomUUID(),
    };
    const { created, sessions, tokens } = await database.recover(
      { email, passwordHash, endTokens, audit },
      Date.now(),
    );
    print(
      `${created ? 'created' : 'recovered'} admin ${email}; ended sessions: ${sessions}, ended ` +
        `tokens: ${tokens}`,
    );
    // Print the password only after the commit: a printed password must work.
    if (password !== null) print(`password: ${password}`);
  } finally {
    await database.close();
  }
}

function read(args: string[]): { email: string; fromStdin: boolean; endTokens: boolean } {
  const { values, positionals } = parsed(args);
  const [verb, email, ...more] = positionals;
  if (verb !== 'recover')
    throw new WrongUsage(verb === undefined ? 'a command is missing' : `unknown command “${verb}”`);
  if (email === undefined || more.length > 0)
    throw new WrongUsage('recover needs exactly one e-mail address');
  if (!Value.Check(Email, email))
    throw new WrongUsage(`“${String(email)}” is not an e-mail address`);
  return {
    email: email.toLowerCase(),
    fromStdin: values['password-stdin'] === true,
    endTokens: values['end-tokens'] === true,
  };
}

function parsed(args: string[]) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: { 'password-stdin': { type: 'boolean' }, 'end-tokens': { type: 'boolean' } },
    });
  } catch (error) {
    throw new WrongUsage(messageOf(error));
  }
}
