/**
 * Changes the owners of custom domains, inside the caller's transaction. A domain that a running
 * project gives up stays reserved for it for some time (DOMAIN_QUARANTINE), because the next owner
 * would get the cookies and the trust of its visitors.
 */
import { DomainError, type FieldProblem } from '../domain/platform/errors.ts';
import { claimRefusal, refusalMessage } from '../domain/routes/domains.ts';
import type { DomainStore } from '../domain/routes/route-stores.ts';
import { type Claiming, MAX_KEPT_HOSTS, newClaim, SWEPT_AT_ONCE } from './claiming.ts';
import type { Tx } from './engine/tables.ts';
import { writeEvents } from './events.ts';
import { freePrefix, sweepPrefixes } from './prefixes.ts';

/**
 * Changes the domains of a project. Throws domain_taken, which lists every refused domain, and
 * validation.
 */
export async function changeDomains(
  claiming: Claiming,
  tx: Tx,
  projectId: string,
  before: readonly string[],
  after: readonly string[],
  now: number,
): Promise<void> {
  const removed = before.filter((host) => !after.includes(host));
  const added = after.filter((host) => !before.includes(host));
  await release(tx, projectId, removed, now);
  await claim(claiming, tx, projectId, after, added, now);
}

async function claim(
  claiming: Claiming,
  tx: Tx,
  projectId: string,
  after: readonly string[],
  added: readonly string[],
  now: number,
): Promise<void> {
  const { db, quarantineMs } = claiming;
  const problems: FieldProblem[] = [];
  // Sorted, so that two requests for the same domains lock them in the same order.
  for (const host of added.toSorted()) {
    await db.capabilities.lockName(tx, `domain:${host}`);
    const last = await tx
      .selectFrom('domain_claims')
      .selectAll()
      .where('host', '=', host)
      .executeTakeFirst();
    const refusal = claimRefusal(last, projectId, quarantineMs, now);
    if (refusal !== null) {
      problems.push({
        field: `domains[${after.indexOf(host)}]`,
        rule: refusal.rule,
        message: refusalMessage(host, refusal),
      });
      continue;
    }
    const row = newClaim(claiming, projectId, now);
    await tx
      .insertInto('domain_claims')
      .values({ host, ...row })
      .onConflict((oc) => oc.column('host').doUpdateSet(row))
      .execute();
  }
  if (problems.length > 0)
    throw new DomainError(
      'domain_taken',
      problems.map(({ field, message }) => `${field}: ${message}`).join('; '),
      problems,
    );
  if (added.length > 0) await checkKept(tx, projectId);
}

async function checkKept(tx: Tx, projectId: string): Promise<void> {
  const { count } = await tx
    .selectFrom('domain_claims')
    .select((eb) => eb.fn.countAll<number | string>().as('count'))
    .where('project_id', '=', projectId)
    .where('released_at', 'is not', null)
    .executeTakeFirstOrThrow();
  if (Number(count) <= MAX_KEPT_HOSTS) return;
  const message = `the project gave up more than ${MAX_KEPT_HOSTS} domains recently; add others later`;
  throw new DomainError('validation', `domains: ${message}`, [
    { field: 'domains', rule: 'max_kept', message },
  ]);
}

async function release(
  tx: Tx,
  projectId: string,
  hosts: readonly string[],
  now: number,
): Promise<void> {
  if (hosts.length === 0) return;
  if (await everRan(tx, projectId))
    await tx
      .updateTable('domain_claims')
      .set({ released_at: now })
      .where('project_id', '=', projectId)
      .where('host', 'in', hosts)
      .execute();
  else
    await tx
      .deleteFrom('domain_claims')
      .where('project_id', '=', projectId)
      .where('host', 'in', hosts)
      .execute();
}

/** Releases all domains of a project that is being removed. */
export async function releaseAll(tx: Tx, projectId: string, now: number): Promise<void> {
  const held = await tx
    .selectFrom('domain_claims')
    .select('host')
    .where('project_id', '=', projectId)
    .where('released_at', 'is', null)
    .execute();
  await release(
    tx,
    projectId,
    held.map(({ host }) => host),
    now,
  );
}

/** Returns whether the project ever ran: if not, it had no visitors. */
async function everRan(tx: Tx, projectId: string): Promise<boolean> {
  const ran = await tx
    .selectFrom('deployments')
    .select('id')
    .where('project_id', '=', projectId)
    .where('status', 'in', ['running', 'retired'])
    .limit(1)
    .executeTakeFirst();
  const route = await tx
    .selectFrom('routes')
    .select('project_id')
    .where('project_id', '=', projectId)
    .limit(1)
    .executeTakeFirst();
  return ran !== undefined || route !== undefined;
}

export const createDomainStore = ({ db, newId, quarantineMs }: Claiming): DomainStore => ({
  free: ({ domain, prefix }, now) =>
    db.write(async (tx) => {
      await db.capabilities.lockName(tx, `domain:${domain}`);
      const released = await tx
        .deleteFrom('domain_claims')
        .where('host', '=', domain)
        .where('released_at', 'is not', null)
        .execute();
      const freed = prefix === null ? false : await freePrefix(db, tx, prefix);
      if (released.every(({ numDeletedRows }) => numDeletedRows === 0n) && !freed) {
        const claim = tx.selectFrom('domain_claims').select('host').where('host', '=', domain);
        if ((await claim.executeTakeFirst()) !== undefined)
          throw new DomainError('wrong_state', `a project has the domain ${domain} now`);
        throw new DomainError('not_found', `${domain} is not kept for a project`);
      }
      const message = `host ${domain} is not kept for its last project any more`;
      await writeEvents(db, tx, [{ at: now, kind: 'host.freed', message }]);
    }),

  async sweep(now) {
    await sweepPrefixes({ db, newId, quarantineMs }, now);
    // Needed because a control plane of an older version deletes projects without releasing their
    // domains.
    await db.writeOne((kysely) =>
      kysely
        .updateTable('domain_claims')
        .set({ released_at: now })
        .where('released_at', 'is', null)
        .where('project_id', 'not in', (eb) => eb.selectFrom('projects').select('projects.id'))
        .execute(),
    );
    const over = await db.kysely
      .selectFrom('domain_claims')
      .select('host')
      .where('released_at', '<=', now - quarantineMs)
      .limit(SWEPT_AT_ONCE)
      .execute();
    if (over.length === 0) return 0;
    await db.writeOne((kysely) =>
      kysely
        .deleteFrom('domain_claims')
        .where('released_at', '<=', now - quarantineMs)
        .where(
          'host',
          'in',
          over.map(({ host }) => host),
        )
        .execute(),
    );
    return over.length;
  },
});
