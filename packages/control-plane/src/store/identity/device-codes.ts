import type { DeviceScope, Identity } from '@berth/wire/gateway';
import type { Asker, DeviceCodeRecord } from '../../domain/identity/identity-records.ts';
import type {
  DeviceCodeStore,
  NewDeviceToken,
  Polled,
} from '../../domain/identity/identity-stores.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Database } from '../engine/database.ts';
import type { Row, Tx } from '../engine/tables.ts';
import { removeExpired } from '../sweep.ts';
import { insertDeviceToken, MAX_DEVICE_TOKENS } from './device-tokens.ts';
import { countTokens } from './tokens.ts';

/**
 * Maximum number of open codes. Anybody can request one; an unconfirmed code expires after 10
 * minutes.
 */
const MAX_OPEN = 10_000;
/** How long in ms an expired code still answers `expired_token`. */
const REMEMBERED_MS = 10 * 60_000;
/** RFC 8628 section 3.5: `slow_down` adds 5 s to the interval between all further polls. */
const SLOWER_BY = 5;
const SLOWEST = 60;
/** Time in ms until every reachable gateway has received a deletion. */
const HEARD_MS = 60_000;
/** Tolerance in ms for polls that arrive early because of the network. */
const EARLY_MS = 500;

export const createDeviceCodeStore = (db: Database): DeviceCodeStore => {
  const lock = db.capabilities.rowLocks;
  return {
    create: (code, now) => createCode(db, code, now),
    findPending: (userHash, now) => findPendingCode(db, userHash, now),
    decide: (userHash, approve, identity, now) =>
      decideCode(db, lock, userHash, approve, identity, now),
    poll: (deviceHash, token, now) => pollCode(db, lock, deviceHash, token, now),
    sweep: (now) => removeExpired(db, 'device_codes', now - REMEMBERED_MS),
  };
};

async function createCode(
  db: Database,
  {
    device_hash,
    user_hash,
    address,
    user_agent,
    scope,
    poll_seconds,
    expires_at,
  }: Asker & {
    device_hash: string;
    user_hash: string;
    poll_seconds: number;
    expires_at: number;
    scope: DeviceScope;
  },
  now: number,
): Promise<boolean> {
  const { open } = await db.kysely
    .selectFrom('device_codes')
    .select((eb) => eb.fn.countAll<number>().as('open'))
    .where('expires_at', '>', now)
    .executeTakeFirstOrThrow();
  if (open >= MAX_OPEN)
    throw new DomainError(
      'too_many_requests',
      'too many devices are waiting for a sign-in; try again in some minutes',
    );
  const made = await db.writeOne((kysely) =>
    kysely
      .insertInto('device_codes')
      .values({
        device_hash,
        user_hash,
        status: 'pending',
        address,
        user_agent,
        scope,
        identity: null,
        poll_seconds,
        polled_at: null,
        created_at: now,
        expires_at,
      })
      .onConflict((oc) => oc.doNothing())
      .returning('device_hash')
      .executeTakeFirst(),
  );
  return made !== undefined;
}

async function findPendingCode(
  db: Database,
  userHash: string,
  now: number,
): Promise<DeviceCodeRecord | null> {
  const row = await db.kysely
    .selectFrom('device_codes')
    .select(['status', 'address', 'user_agent', 'scope', 'created_at', 'expires_at'])
    .where('user_hash', '=', userHash)
    .where('status', '=', 'pending')
    .where('expires_at', '>', now)
    .executeTakeFirst();
  return row === undefined ? null : { ...row, scope: row.scope ?? 'projects' };
}

async function decideCode(
  db: Database,
  lock: boolean,
  userHash: string,
  approve: boolean,
  identity: Identity,
  now: number,
): Promise<void> {
  const email = identity.email.toLowerCase();
  await db.write(async (tx) => {
    const row = await tx
      .selectFrom('device_codes')
      .selectAll()
      .where('user_hash', '=', userHash)
      .where('expires_at', '>', now)
      .$if(lock, (q) => q.forUpdate())
      .executeTakeFirst();
    if (row === undefined)
      throw new DomainError('not_found', 'the user code is unknown or has expired');
    if (row.status !== 'pending') return refuseOther(row, approve, email);
    if (approve) {
      if (await mustStayOut(tx, email, now)) throw new DomainError('account_disabled');
      await db.capabilities.lockName(tx, `device-tokens:${email}`);
      if ((await countTokens(tx, 'device_tokens', now, email)) >= MAX_DEVICE_TOKENS)
        throw new DomainError('too_many_tokens');
    }
    await tx
      .updateTable('device_codes')
      .set({
        status: approve ? 'approved' : 'denied',
        identity: approve ? JSON.stringify(identity) : null,
      })
      .where('device_hash', '=', row.device_hash)
      .execute();
  });
}

function pollCode(
  db: Database,
  lock: boolean,
  deviceHash: string,
  token: NewDeviceToken,
  now: number,
): Promise<Polled> {
  return db.write(async (tx) => {
    const row = await tx
      .selectFrom('device_codes')
      .selectAll()
      .where('device_hash', '=', deviceHash)
      .$if(lock, (q) => q.forUpdate())
      .executeTakeFirst();
    if (row === undefined || row.status === 'issued') return 'invalid_grant';
    if (row.expires_at <= now) return 'expired_token';
    if (row.status === 'denied') return 'access_denied';
    return row.status === 'approved' && row.identity !== null
      ? issue(tx, row, JSON.parse(row.identity) as Identity, token, now)
      : stillPending(tx, row, now);
  });
}

/**
 * Accepts a repeated decision if it is the same and by the same person. Throws wrong_state for any
 * other.
 */
function refuseOther(row: Row<'device_codes'>, approve: boolean, email: string): void {
  const by =
    row.identity === null ? null : (JSON.parse(row.identity) as Identity).email.toLowerCase();
  const same = approve ? row.status !== 'denied' && by === email : row.status === 'denied';
  if (!same)
    throw new DomainError(
      'wrong_state',
      'the code was already approved or denied; start again on the device',
    );
}

async function issue(
  tx: Tx,
  row: Row<'device_codes'>,
  identity: Identity,
  token: NewDeviceToken,
  now: number,
): Promise<Polled> {
  const denied = await mustStayOut(tx, identity.email.toLowerCase(), now);
  // The row lock above makes this a compare-and-set: the second of two polls finds that the code
  // was issued.
  await tx
    .updateTable('device_codes')
    .set({ status: denied ? 'denied' : 'issued' })
    .where('device_hash', '=', row.device_hash)
    .execute();
  if (denied) return 'access_denied';
  await insertDeviceToken(
    tx,
    {
      ...token,
      identity,
      address: row.address,
      user_agent: row.user_agent,
      scope: row.scope ?? 'projects',
    },
    now,
  );
  return 'issued';
}

async function stillPending(tx: Tx, row: Row<'device_codes'>, now: number): Promise<Polled> {
  const tooSoon =
    row.polled_at !== null && now - row.polled_at < row.poll_seconds * 1000 - EARLY_MS;
  await tx
    .updateTable('device_codes')
    .set({
      polled_at: now,
      poll_seconds: tooSoon ? Math.min(row.poll_seconds + SLOWER_BY, SLOWEST) : row.poll_seconds,
    })
    .where('device_hash', '=', row.device_hash)
    .execute();
  return tooSoon ? 'slow_down' : 'authorization_pending';
}

/**
 * Returns whether the person is disabled, or was deleted so recently that a gateway might still
 * accept an old session.
 */
async function mustStayOut(tx: Tx, email: string, now: number): Promise<boolean> {
  const disabled = await tx
    .selectFrom('users')
    .select('id')
    .where('email', '=', email)
    .where('disabled', '=', 1)
    .executeTakeFirst();
  if (disabled !== undefined) return true;
  const deleted = await tx
    .selectFrom('deleted_users')
    .select('deleted_at')
    .where('email', '=', email)
    .executeTakeFirst();
  return deleted !== undefined && deleted.deleted_at > now - HEARD_MS;
}
