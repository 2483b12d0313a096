/**
 * Checks a history (history.ts) for what must hold whatever was killed, lost, repeated or late.
 * Pure: it reads only events, never the database. docs/invariants.md describes each invariant; a
 * test keeps the two lists equal.
 */
import { isSettled, isTerminal, type DeploymentState } from '@berth/wire/vocabulary';
import type { Counts, HistoryEvent } from './history.ts';

export const INVARIANTS = {
  settles: 'every accepted deployment ends',
  'one-lease': 'at most one live lease per task',
  'one-serving': 'no two containers of one project serve after a switch',
  'one-writer': 'no two versions of a stop-first project run at once',
  'volume-stays': 'a volume is never replaced by an empty or an older one',
  'volume-kept': 'the volume of a project is never lost',
  'newest-data': 'no copy of a volume goes live that is older than what was written',
  'drain-empties': 'a finished drain leaves no volume behind that a project uses',
  'stop-ends': 'a stop ends every deployment in progress',
  'stop-stays': 'a stopped project stays stopped until a person starts it',
  'stop-rests': 'a stopped project has its page and no running container',
  'same-release': 'a start and a restart begin the release that ran last',
  'rollback-goes-back': 'rollbacks without a target go further and further back',
  'old-serves': 'an old version serves until the new one is routed',
  'route-observed': 'a route points only at a port that was observed',
  'running-is-routed': 'running means that the proxy serves it',
  'own-host': 'a host is never answered by another project’s container',
  'terminal-stays': 'a terminal state never changes',
  'acknowledged-stays': 'an acknowledged write is never lost',
  'report-once': 'the same report twice has one effect',
  'nothing-destroyed': 'nothing is destroyed because something was unreachable',
  bounded: 'queues, attempts and stories are bounded',
  'own-clock': 'timeouts use only the control plane’s clock',
  uptime: 'no deadline runs while no control plane serves',
  'one-verdict': 'each delivery of a push gets one verdict',
  'push-once': 'one push causes at most one deployment',
  'own-branch': 'a deployment has a commit of the branch that was set',
  'last-push': 'the last push of a branch is live in the end',
  'last-status': 'the forge has the last status of each commit',
  'status-once': 'a commit status that arrived is not sent again',
  'no-surprise': 'every error has a row in the error table',
} as const;
export type InvariantId = keyof typeof INVARIANTS;
export type Violation = { invariant: InvariantId; at: number; message: string };

/** A request to a forge takes at most this long. */
const SENDING_MS = 10_000;
/** A message may arrive this late, and twice. */
const LATE_MS = 10_000;
/**
 * Some time after a report was answered, its effect is in the configuration. With several control
 * planes: 10 s later (docs/adr/0008).
 */
const TOLD_MS = 5_000;

type Of<T extends HistoryEvent['type']> = Extract<HistoryEvent, { type: T }>;

export function check(history: readonly HistoryEvent[]): Violation[] {
  const violations: Violation[] = [];
  const all = <T extends HistoryEvent['type']>(type: T): Of<T>[] =>
    history.filter((e): e is Of<T> => e.type === type);
  const broken = (invariant: InvariantId, at: number, message: string): void =>
    void violations.push({ invariant, at, message });

  const reads = groupBy(all('read'), (e) => e.deployment);
  const accepted = new Map(all('accepted').map((e) => [e.deployment, e]));
  const deletedAt = new Map(all('deleting').map((e) => [e.id, e.at]));
  const isGone = (id: string, at: number): boolean => {
    const deleted = deletedAt.get(id);
    return deleted !== undefined && deleted <= at;
  };
  const end = all('ended').at(-1) ?? null;

  checkStates();
  checkLeases();
  checkReports();
  checkContainersAndRoutes();
  checkHosts();
  checkUptime();
  checkPushes();
  checkStatuses();
  checkVolumes();
  checkNewest();
  checkStops();
  checkReleases();
  checkBranches();
  for (const e of all('gauge'))
    if (e.value > e.bound) broken('bounded', e.at, `${e.name} is ${e.value}, more than ${e.bound}`);
  for (const e of all('internal_error')) broken('no-surprise', e.at, e.message);
  return violations.sort((a, b) => a.at - b.at);

  function checkVolumes(): void {
    for (const [project, mounts] of groupBy(all('mounted'), (e) => e.project))
      for (const mounted of mounts)
        for (const earlier of mounts) {
          if (earlier.at >= mounted.at || mounted.entries.includes(earlier.deployment)) continue;
          const ran = (reads.get(earlier.deployment) ?? []).some(
            (read) => read.state === 'running' && read.at < mounted.at,
          );
          if (ran)
            broken(
              'volume-stays',
              mounted.at,
              `project ${project}: ${mounted.deployment} got a volume without what ` +
                `${earlier.deployment} wrote`,
            );
        }
    const wrote = groupBy(all('mounted'), (e) => e.project);
    for (const { project, copy, entries, at } of all('kept'))
      for (const id of new Set(wrote.get(project)?.map((e) => e.deployment))) {
        const ran = reads.get(id)?.some((read) => read.state === 'running') === true;
        if (ran && entries?.includes(id) !== true)
          broken(
            'volume-kept',
            at,
            `project ${project}: what ${id} wrote is not in copy ${copy ?? 'none'}, which ` +
              'counts at the end',
          );
      }
    for (const { node, left, at } of all('drained'))
      if (left.length > 0)
        broken(
          'drain-empties',
          at,
          `the drain of ${node} has finished, and it has the volumes of ${left.join(', ')}`,
        );
  }

  /**
   * Writes that the control plane may know of went to the copy that counts. After the switch to
   * another copy, containers that somebody starts beside the old one write there in vain.
   */
  function checkNewest(): void {
    type Data = {
      counts: Map<string, Counts>;
      mounts: Map<string, string>;
      counted: Counts;
      live: string | null;
    };
    const byProject = new Map<string, Data>();
    const dataOf = (project: string): Data => {
      const data = byProject.get(project) ?? {
        counts: new Map(),
        mounts: new Map(),
        counted: {},
        live: null,
      };
      byProject.set(project, data);
      return data;
    };
    const projectOf = new Map<string, string>();
    const compare = (project: string, at: number, who: string, counts: Counts): void => {
      for (const [deployment, count] of Object.entries(dataOf(project).counted))
        if ((counts[deployment] ?? 0) < count)
          broken(
            'newest-data',
            at,
            `project ${project}: ${who} has ${deployment} up to ${counts[deployment] ?? 0}, ` +
              `and it wrote ${count}`,
          );
    };
    for (const e of history) {
      if (e.type === 'mounted') {
        const data = dataOf(e.project);
        projectOf.set(e.deployment, e.project);
        data.mounts.set(e.deployment, e.copy);
        data.counts.set(e.copy, { ...e.counts });
      } else if (e.type === 'wrote') {
        const data = dataOf(e.project);
        data.counts.set(e.copy, { ...data.counts.get(e.copy), [e.deployment]: e.count });
        if (e.copy === data.live) data.counted[e.deployment] = e.count;
      } else if (e.type === 'switched') dataOf(e.project).live = e.copy;
      else if (e.type === 'moved' && e.to === 'published') {
        const project = projectOf.get(e.deployment);
        const copy = project === undefined ? undefined : dataOf(project).mounts.get(e.deployment);
        if (project === undefined || copy === undefined) continue;
        const data = dataOf(project);
        data.live ??= copy;
        compare(project, e.at, e.deployment, data.counts.get(copy) ?? {});
      } else if (e.type === 'kept' && e.counts !== null)
        compare(e.project, e.at, `copy ${e.copy ?? 'none'}`, e.counts);
    }
  }

  function checkStops(): void {
    for (const stop of all('stop_accepted'))
      for (const [id, e] of accepted) {
        if (e.project !== stop.project || e.at >= stop.sent) continue;
        const open = reads
          .get(id)
          ?.find(
            (r) =>
              r.sent > stop.at && r.state !== 'missing' && !isSettled(r.state as DeploymentState),
          );
        if (open !== undefined)
          broken(
            'stop-ends',
            open.at,
            `deployment ${id} is ${open.state} after the stop of its project`,
          );
      }
    /** Requests that may start the project, by the time until which they may still take effect. */
    const open = new Map<string, Map<string, number>>();
    /** Stopped for certain since then. */
    const rests = new Map<string, number>();
    for (const e of history) {
      if (e.type === 'wanted') {
        const requests = open.get(e.project) ?? new Map<string, number>();
        open.set(e.project, requests.set(e.request, Infinity));
        rests.delete(e.project);
      } else if (e.type === 'answered')
        open.get(e.project)?.set(e.request, e.isOnce ? e.at : e.at + LATE_MS);
      else if (e.type === 'stop_accepted') {
        if ([...(open.get(e.project)?.values() ?? [])].every((until) => until < e.sent))
          rests.set(e.project, e.at);
      } else if (e.type === 'project' && !e.stopped) {
        const since = rests.get(e.project);
        if (since !== undefined && e.sent > since)
          broken('stop-stays', e.at, `project ${e.project} was started, and nobody asked for it`);
      }
    }
  }

  function checkReleases(): void {
    for (const [project, listed] of groupBy(all('listed'), (e) => e.project)) {
      const byId = new Map(listed.map((d) => [d.deployment, d]));
      const ran = listed.filter((d) => d.state === 'running' || d.state === 'retired');
      const lastBefore = (generation: number): Of<'listed'> | undefined =>
        ran.filter((d) => d.generation < generation).sort((a, b) => b.generation - a.generation)[0];
      for (const d of listed) {
        const last = lastBefore(d.generation);
        const from = byId.get(d.of ?? '');
        if (d.trigger === 'start' || d.trigger === 'restart') {
          if (last === undefined || from?.deployment !== last.deployment || d.image !== last.image)
            broken(
              'same-release',
              d.at,
              `project ${project}: the ${d.trigger} ${d.deployment} runs ${d.image} of ` +
                `${d.of}, and ${last?.deployment} with ${last?.image} ran last`,
            );
        }
        if (d.trigger !== 'older' || from === undefined) continue;
        // A deployment that went live while the request was on its way decides nothing.
        const sent = accepted.get(d.deployment)?.sent ?? 0;
        const wasLast =
          last !== undefined &&
          reads.get(last.deployment)?.some((r) => r.state === 'running' && r.at < sent) === true;
        const before = !wasLast
          ? undefined
          : last.trigger === 'older'
            ? byId.get(last.of ?? '')
            : last;
        if (before !== undefined && from.generation >= before.generation)
          broken(
            'rollback-goes-back',
            d.at,
            `project ${project}: ${d.deployment} rolls back to ${from.deployment}, not before ` +
              before.deployment,
          );
      }
    }
  }

  /**
   * Compares each deployment from source with the settings that may have held when it was created.
   */
  function checkBranches(): void {
    const pushed = new Set(all('pushed').map((e) => `${e.place} ${e.commit}`));
    // A commit whose process died at once is not recorded; `pending` may come again later.
    const created = new Map<string, number>();
    for (const [deployment, [first]] of groupBy(all('moved'), (e) => e.deployment))
      if (first?.to === 'pending') created.set(deployment, first.at);
    const answers = new Map(all('changed').map((e) => [e.request, e.at]));
    const changes = groupBy(all('changing'), (e) => e.project);
    for (const d of all('listed')) {
      if (d.place === undefined || d.of !== null) continue;
      if (d.commit !== undefined && d.commit !== null && !pushed.has(`${d.place} ${d.commit}`))
        broken(
          'own-branch',
          d.at,
          `project ${d.project}: ${d.deployment} has commit ${d.commit}, which ${d.place} does ` +
            'not have',
        );
      const at = created.get(d.deployment) ?? null;
      const ofProject = changes.get(d.project) ?? [];
      // A change is over when a later one was answered that was sent when no message of the first
      // was on its way any more.
      const mayHold = (e: Of<'changing'>): boolean =>
        at !== null &&
        e.at <= at &&
        !ofProject.some(
          (later) => later.at > e.at + LATE_MS && (answers.get(later.request) ?? Infinity) <= at,
        );
      if (
        at !== null &&
        ofProject.length > 0 &&
        !ofProject.some((e) => e.place === d.place && mayHold(e))
      )
        broken(
          'own-branch',
          d.at,
          `project ${d.project}: ${d.deployment} deploys ${d.place}, which was not set at its ` +
            'creation',
        );
    }
  }

  function checkStates(): void {
    for (const [id, e] of accepted) {
      const seen = reads.get(id) ?? [];
      const last = seen.at(-1);
      // Deleting a project deletes its deployments.
      const deleted = isGone(e.project, Infinity);
      if (
        end !== null &&
        (last === undefined ||
          !(isSettled(last.state as DeploymentState) || (last.state === 'missing' && deleted)))
      )
        broken('settles', end.at, `deployment ${id} is ${last?.state ?? 'never read'} at the end`);
      for (const read of seen)
        if (read.state === 'missing' && read.sent > e.at && !isGone(e.project, read.at))
          broken('acknowledged-stays', read.at, `deployment ${id} was accepted, then missing`);
    }
    for (const [id, seen] of reads) {
      let terminal: Of<'read'> | null = null;
      for (const read of seen) {
        if (
          terminal !== null &&
          read.sent > terminal.at &&
          read.state !== terminal.state &&
          read.state !== 'missing'
        )
          broken(
            'terminal-stays',
            read.at,
            `deployment ${id} was ${terminal.state}, then ${read.state}`,
          );
        if (terminal === null && isTerminal(read.state as DeploymentState)) terminal = read;
      }
    }
    for (const e of all('cancel_accepted')) {
      const live = reads
        .get(e.deployment)
        ?.find((read) => read.sent > e.at && read.state === 'running');
      if (live !== undefined)
        broken(
          'acknowledged-stays',
          live.at,
          `deployment ${e.deployment} was cancelled, then running`,
        );
    }
    const byKey = groupBy(
      [...accepted.values()].filter((e) => e.key !== null),
      (e) => `${e.project} ${e.key}`,
    );
    for (const [key, made] of byKey)
      if (new Set(made.map((e) => e.deployment)).size > 1)
        broken('report-once', made.at(-1)?.at ?? 0, `two deployments for one key: ${key}`);
  }

  function checkLeases(): void {
    const leaseMs = all('began')[0]?.lease_ms ?? null;
    const claims = groupBy(all('claimed'), (e) => e.task);
    const uses = [...all('renewed'), ...all('reported')];
    for (const [task, given] of claims) {
      const attempts = new Map<number, string>();
      for (const claim of given) {
        if (attempts.has(claim.attempt))
          broken(
            'one-lease',
            claim.at,
            `task ${task}: attempt ${claim.attempt} was assigned twice`,
          );
        attempts.set(claim.attempt, claim.lease);
      }
    }
    for (const use of uses) {
      const given = claims.get(use.task) ?? [];
      const own = given.find((c) => c.lease === use.lease);
      const newer = given.find(
        (c) => c.at < use.sent && c.attempt > (own?.attempt ?? 0) && c.lease !== use.lease,
      );
      // A lease that no client was seen to get may be the answer that was lost on its way: the
      // history decides nothing about it.
      if (newer !== undefined && (own !== undefined || use.lease === null))
        broken(
          'one-lease',
          use.at,
          `task ${use.task}: ${use.type} with ${use.lease ?? 'no lease'} after attempt ` +
            `${newer.attempt} was assigned`,
        );
    }
    if (leaseMs === null) return;
    // One control plane grants and another ends it, and their clocks differ a little (docs/flow.md
    // "Deadlines").
    const areSeveral = new Set(all('serving').map((e) => e.name)).size > 1;
    const skewMs = areSeveral ? (all('began')[0]?.deadlines?.slack ?? 0) : 0;
    for (const e of all('taken_away')) {
      if (e.why !== 'lease') continue;
      const grants = [
        ...(claims.get(e.task) ?? []),
        ...all('renewed').filter((r) => r.task === e.task),
      ];
      const last = Math.max(
        0,
        ...grants.filter((g) => g.lease === e.lease && g.at <= e.at).map((g) => g.sent),
      );
      if (e.at + skewMs < last + leaseMs)
        broken(
          'own-clock',
          e.at,
          `task ${e.task}: the lease ended ${last + leaseMs - e.at} ms too early`,
        );
    }
  }

  /** Compares each deadline with the time in which at least one control plane served. */
  function checkUptime(): void {
    const [began] = all('began');
    const deadlines = began?.deadlines;
    if (began === undefined || deadlines === undefined) return;
    const gaps = gapsOf(all('serving'));
    const served = (from: number, to: number): number => {
      const within = gaps.filter((g) => g.from < to && g.to > from);
      const away = within.reduce((sum, g) => sum + Math.min(g.to, to) - Math.max(g.from, from), 0);
      // One slack more, for the moments between a commit and its record: the other control plane
      // sees the commit sooner.
      return to - from - away + (within.length + 1) * deadlines.slack;
    };
    const limits: Record<string, number> = {
      no_builder: deadlines.queue,
      no_deploy_node: deadlines.queue,
      still_writing: deadlines.queue,
      proxy_unconfirmed: deadlines.route,
    };
    const stops = all('reported').filter((e) => e.kind === 'retire' && e.status === 'completed');
    const moves = groupBy(all('moved'), (e) => e.deployment);
    const projects = new Map(
      [...all('reporting'), ...all('read')].map((e) => [e.deployment, e.project]),
    );
    const hasGoneLive = (of: string, from: number, to: number): boolean =>
      all('moved').some(
        (e) =>
          e.to === 'running' &&
          e.at > from &&
          e.at <= to &&
          projects.get(e.deployment) === projects.get(of),
      );
    for (const [deployment, steps] of moves)
      for (const [i, step] of steps.entries()) {
        const before = steps[i - 1];
        if (step.to !== 'failed' || step.code === null || before === undefined) continue;
        const timeout =
          step.code === 'task_timeout'
            ? before.to === 'building'
              ? deadlines.build
              : deadlines.deploy
            : undefined;
        const limit = limits[step.code] ?? timeout;
        // No deadline: Berth stopped the old version for this one or an earlier one, no node can
        // take this one, and the old version starts again.
        const isStop = (r: Of<'reported'>): boolean =>
          projects.get(r.deployment) === projects.get(deployment) &&
          r.at <= step.at &&
          !hasGoneLive(r.deployment, r.at, step.at);
        const hasStopped = before.to === 'built' && stops.some(isStop);
        if (step.code === 'no_deploy_node' && hasStopped) continue;
        if (limit === undefined || served(before.at, step.at) >= limit) continue;
        broken(
          'uptime',
          step.at,
          `deployment ${deployment} failed with ${step.code} after ` +
            `${served(before.at, step.at)} of ${limit} ms of service`,
        );
      }
    for (const e of all('taken_away')) {
      if (e.why !== 'lease') continue;
      const grants = [...all('claimed'), ...all('renewed')].filter(
        (g) => g.task === e.task && g.lease === e.lease && g.at <= e.at,
      );
      const last = Math.max(0, ...grants.map((g) => g.sent));
      if (last > 0 && served(last, e.at) < began.lease_ms)
        broken(
          'uptime',
          e.at,
          `task ${e.task}: the lease ended after ${served(last, e.at)} of ${began.lease_ms} ms of ` +
            'service',
        );
    }
  }

  function checkPushes(): void {
    for (const [id, seen] of groupBy(all('delivery'), (e) => e.id)) {
      let given: Of<'delivery'> | null = null;
      for (const e of seen) {
        if (
          given !== null &&
          e.sent > given.at &&
          (e.verdict !== given.verdict || e.deployment !== given.deployment)
        )
          broken(
            'one-verdict',
            e.at,
            `delivery ${id} was ${given.verdict}, then ${e.verdict ?? 'waits'}`,
          );
        if (given === null && e.verdict !== null) given = e;
      }
      const last = seen.at(-1);
      if (end !== null && given === null && last !== undefined && !isGone(last.project, Infinity))
        broken('one-verdict', end.at, `delivery ${id} has no verdict at the end`);
    }
    for (const [push, caused] of groupBy(all('caused'), (e) => e.push)) {
      const deployments = [...new Set(caused.map((e) => e.deployment))];
      if (deployments.length > 1)
        broken('push-once', caused.at(-1)?.at ?? 0, `${push} caused ${deployments.join(' and ')}`);
    }
    for (const e of all('tip'))
      if (!e.deployed)
        broken(
          'last-push',
          e.at,
          `project ${e.project}: commit ${e.commit} was pushed last, and is not live`,
        );
  }

  function checkStatuses(): void {
    const byCommit = groupBy(all('status'), (e) => e.commit);
    for (const due of all('status_due')) {
      const last = byCommit.get(due.commit)?.at(-1);
      if (last === undefined || last.deployment !== due.deployment || last.state !== due.state)
        broken(
          'last-status',
          due.at,
          `commit ${due.commit}: the forge has ` +
            `${last === undefined ? 'no status' : `${last.state} of ${last.deployment}`} ` +
            'instead of ' +
            `${due.state} of ${due.deployment}`,
        );
    }
    // After a kill, a stall or a lost answer nobody knows whether a status has arrived.
    const doubts = [...all('serving').filter((e) => !e.up), ...all('cut')].map((e) => e.at);
    for (const [what, sent] of groupBy(
      all('status'),
      (e) => `${e.state} (${e.text}) of commit ${e.commit} and deployment ${e.deployment}`,
    ))
      for (const [i, e] of sent.entries()) {
        const before = sent[i - 1];
        if (
          before?.heard === true &&
          !doubts.some((at) => before.at - SENDING_MS <= at && at <= e.at)
        )
          broken('status-once', e.at, `the forge got ${what} twice`);
      }
  }

  function checkReports(): void {
    const taken = groupBy(all('reported'), (e) => e.task);
    for (const [task, reports] of taken)
      if (new Set(reports.map((r) => r.content)).size > 1)
        broken('report-once', reports.at(-1)?.at ?? 0, `task ${task}: two reports were accepted`);
    for (const report of all('reported')) {
      if (report.kind !== 'build' || report.status !== 'completed') continue;
      const back = reads
        .get(report.deployment)
        ?.find((r) => r.sent > report.at && (r.state === 'pending' || r.state === 'building'));
      if (back !== undefined)
        broken(
          'acknowledged-stays',
          back.at,
          `deployment ${report.deployment}: its build was accepted, then it is ${back.state}`,
        );
    }
    const tasksOf = (deployment: string, kind: string): number =>
      new Set(
        all('reporting')
          .filter((e) => e.deployment === deployment && e.kind === kind && e.status === 'completed')
          .map((e) => e.task),
      ).size;
    for (const { deployment, kinds, at } of all('story')) {
      const published = kinds['route_published'] ?? 0;
      if (published > tasksOf(deployment, 'deploy'))
        broken(
          'report-once',
          at,
          `deployment ${deployment}: its route was published ${published} times`,
        );
    }
  }

  function checkContainersAndRoutes(): void {
    const known = new Map<string, Set<string>>();
    const served = new Map<string, Record<string, string>>();
    const pages = new Map<string, readonly string[]>();
    /** Projects that may be stopped, since the last request for it. */
    const maybeStopped = new Map<string, number>();
    let upSince = 0;
    const everServed = new Map<string, Set<string>>();
    const containers = new Map<string, Of<'container'>>();
    /**
     * Containers that got another port from their engine, and the deployments that had each
     * address.
     */
    const moved = new Set<string>();
    const users = new Map<string, string[]>();
    /** The first cause of each container. */
    const causes = new Map<string, Of<'container'>['cause']>();
    const starts = groupBy(
      all('container').filter((e) => e.change === 'started'),
      (e) => e.deployment,
    );
    const single = new Set(all('single_writer').map((e) => e.project));
    /** Projects that people may have made stop-first. */
    const maybeSingle = new Set<string>();
    const alone = new Set(all('listed').flatMap((e) => (e.alone === true ? [e.deployment] : [])));
    const liveSince = new Map<string, Of<'read'>>();
    const addressesOf = (id: string): Set<string> => upsert(known, id);

    for (const e of history) {
      switch (e.type) {
        case 'reporting':
        case 'observing':
          if (e.address === null) break;
          addressesOf(e.project).add(e.address);
          addressesOf(e.deployment).add(e.address);
          break;
        case 'routed':
          for (const [project, address] of Object.entries(e.routes)) {
            if (!addressesOf(project).has(address))
              broken(
                'route-observed',
                e.at,
                `project ${project} is routed to ${address}, which no agent reported for it`,
              );
            upsert(everServed, project).add(address);
          }
          served.set(e.proxy, e.routes);
          pages.set(e.proxy, e.pages ?? []);
          break;
        case 'serving':
          upSince = e.at;
          break;
        case 'stopping':
          maybeStopped.set(e.project, e.at);
          break;
        case 'changing':
          if (e.replace === 'recreate') maybeSingle.add(e.project);
          break;
        case 'project':
          if (!e.stopped && e.sent > Math.max(maybeStopped.get(e.project) ?? 0, upSince) + LATE_MS)
            maybeStopped.delete(e.project);
          break;
        case 'container':
          containerChanged(e);
          break;
        case 'read':
          if (e.state !== 'running') break;
          wasRouted(e);
          if (!liveSince.has(e.deployment)) liveSince.set(e.deployment, e);
          break;
        case 'served': {
          const newer = [...liveSince.values()].find(
            (r) =>
              r.project === e.project &&
              r.at < e.sent &&
              generationOf(r.deployment) > generationOf(e.deployment),
          );
          if (newer !== undefined)
            broken(
              'one-serving',
              e.at,
              `project ${e.project}: ${e.deployment} answered after ${newer.deployment} was ` +
                'running',
            );
          break;
        }
        default:
      }
    }
    if (end !== null) checkEnd(end.at);

    /** The order of acceptance stands for the generation. */
    function generationOf(deployment: string): number {
      return accepted.get(deployment)?.at ?? 0;
    }
    function wasRouted(e: Of<'read'>): void {
      const addresses = known.get(e.deployment) ?? new Set();
      const routed = everServed.get(e.project) ?? new Set();
      if (![...addresses].some((address) => routed.has(address)))
        broken(
          'running-is-routed',
          e.at,
          `deployment ${e.deployment} is running, but no proxy served it`,
        );
    }
    function containerChanged(e: Of<'container'>): void {
      const down = e.change === 'stopped' || e.change === 'removed';
      if (
        e.change === 'started' &&
        (e.alone === true || alone.has(e.deployment) || single.has(e.project))
      )
        startedAlone(e);
      // Stop-first stops the live container, and starts it again when the new version fails. A stop
      // does so on request.
      if (
        down &&
        e.cause === 'task' &&
        !single.has(e.project) &&
        !(e.for_next === true && maybeSingle.has(e.project)) &&
        !maybeStopped.has(e.project) &&
        !isGone(e.project, e.at) &&
        !isGone(e.node, e.at)
      ) {
        // A version that never ran is withdrawn although an unreachable proxy may still have its
        // route.
        const wasLive = reads.get(e.deployment)?.some((r) => r.state === 'running') === true;
        // An engine that restarts gives the port of one version to another one: the route still
        // means the first one.
        const isLent =
          moved.has(e.container) &&
          (users.get(e.address ?? '') ?? []).some((deployment) => deployment !== e.deployment);
        for (const [proxy, routes] of wasLive && !isLent ? served : [])
          if (e.address !== null && routes[e.project] === e.address)
            broken(
              'old-serves',
              e.at,
              `project ${e.project}: ${e.change} ${e.address}, where ${proxy} still sends requests`,
            );
        // A container that was removed because its report came too late and then started again is
        // no loss.
        const again = starts.get(e.deployment)?.find((s) => s.at > e.at)?.at ?? Infinity;
        const alive = reads
          .get(e.deployment)
          ?.find(
            (r) => r.sent > e.at && r.at < again && r.state === 'running' && r.node === e.node,
          );
        // Two agents with one identity may each start a container: the losing attempt removes its
        // own, and the other one serves.
        const other = [...containers.values()].some(
          (c) => c.deployment === e.deployment && c.node === e.node && c.container !== e.container,
        );
        if (alive !== undefined && !other)
          broken(
            'nothing-destroyed',
            e.at,
            `deployment ${e.deployment} is running, and its container was ${e.change} by a task`,
          );
      }
      if (e.change === 'moved') moved.add(e.container);
      if (!down && e.address !== null)
        users.set(e.address, [...(users.get(e.address) ?? []), e.deployment]);
      if (down) containers.delete(e.container);
      // A restart by the engine does not change which actor started the container.
      else {
        const cause = e.change === 'moved' ? (causes.get(e.container) ?? e.cause) : e.cause;
        causes.set(e.container, cause);
        containers.set(e.container, { ...e, cause });
      }
    }
    function startedAlone(e: Of<'container'>): void {
      // The node was deleted by force: its agent could not be informed in time.
      if (isGone(e.node, e.at)) return;
      const other = [...containers.values()].find(
        (c) => c.project === e.project && c.container !== e.container && !isGone(c.node, e.at),
      );
      const free: readonly string[] = ['contract', 'hand'];
      if (other !== undefined && !free.includes(e.cause) && !free.includes(other.cause))
        broken(
          'one-writer',
          e.at,
          `project ${e.project}: ${e.deployment} started on ${e.node} while ` +
            `${other.deployment} runs on ${other.node}`,
        );
    }
    function checkStopped(at: number, left: readonly Of<'container'>[]): void {
      const stopped = new Map(all('project').map((e) => [e.project, e.stopped]));
      for (const [project, isStopped] of stopped) {
        if (isGone(project, Infinity)) continue;
        const runs = [...reads.entries()].some(
          ([, seen]) => seen.at(-1)?.state === 'running' && seen[0]?.project === project,
        );
        for (const [proxy, routes] of served) {
          const hasPage = pages.get(proxy)?.includes(project) === true;
          if (isStopped && routes[project] !== undefined)
            broken(
              'stop-rests',
              at,
              `project ${project} is stopped, and ${proxy} sends requests to ${routes[project]}`,
            );
          if (hasPage !== isStopped && (hasPage || runs))
            broken(
              'stop-rests',
              at,
              `project ${project} is ${isStopped ? 'stopped without' : 'not stopped, with'} ` +
                `its page at ${proxy}`,
            );
        }
        const running = left.find((c) => c.project === project);
        if (isStopped && running !== undefined)
          broken(
            'stop-rests',
            at,
            `project ${project} is stopped, and a container of ${running.deployment} runs on ` +
              running.node,
          );
      }
    }
    function checkEnd(at: number): void {
      const left = [...containers.values()].filter(
        (c) => c.cause !== 'contract' && !isGone(c.node, at),
      );
      checkStopped(at, left);
      for (const [project, all] of groupBy(left, (c) => c.project)) {
        if (all.length > 1)
          broken(
            'one-serving',
            at,
            `project ${project} has ${all.length} containers at the end: ` +
              all.map((c) => c.deployment).join(', '),
          );
        for (const c of all) {
          const state = reads.get(c.deployment)?.at(-1)?.state;
          if (state !== 'running')
            broken(
              'one-serving',
              at,
              `a container of deployment ${c.deployment} is left, which is ${state ?? 'unknown'}`,
            );
          else if (![...served.values()].every((routes) => routes[project] === c.address))
            broken(
              'running-is-routed',
              at,
              `deployment ${c.deployment} runs at ${c.address}, and a proxy sends requests to ` +
                [...served.values()].map((r) => r[project] ?? 'nobody').join(', '),
            );
        }
      }
    }
  }

  /**
   * Compares every route with the container that has its address at that moment. A port that its
   * agent chose stays right whoever runs. A port that the engine chose, and an address that another
   * machine had before, may lead to another project until the control plane has got a report of the
   * container there.
   */
  function checkHosts(): void {
    const present = new Map<string, Of<'container'>>();
    const machines = new Map<string, Set<string>>();
    const served = new Map<string, Record<string, string>>();
    /** Address, and the time since which the control plane knows whose container is there. */
    const told = new Map<string, number>();
    const sending = new Map<string, Of<'reporting'>>();
    const toldMs = new Set(all('serving').map((e) => e.name)).size > 1 ? TOLD_MS + 10_000 : TOLD_MS;
    const leave = (container: string): void => {
      for (const [address, c] of present)
        if (c.container === container) {
          present.delete(address);
          told.delete(address);
        }
    };
    const tell = (project: string, address: string, at: number): void => {
      if (present.get(address)?.project === project && !told.has(address)) told.set(address, at);
    };
    const isOwn = ({ address, keeps_port }: Of<'container'>): boolean =>
      keeps_port === true &&
      (machines.get(address?.slice(0, address.lastIndexOf(':')) ?? '')?.size ?? 1) < 2;
    const compare = (at: number, toldBefore: number, asking: string | null = null): void => {
      for (const [proxy, routes] of served)
        for (const [project, address] of Object.entries(routes)) {
          const other = present.get(address);
          if (other === undefined || other.project === project) continue;
          // The others may still have the configuration that they asked for before they were cut
          // off.
          const isKnown =
            (asking === null || proxy === asking) && (told.get(address) ?? Infinity) <= toldBefore;
          if (isOwn(other) || isKnown)
            broken(
              'own-host',
              at,
              `project ${project}: ${proxy} sends its requests to ${address}, where ` +
                `${other.project} answers`,
            );
        }
    };
    for (const e of history)
      if (e.type === 'addressed') upsert(machines, e.host).add(e.machine);
      else if (e.type === 'container') {
        leave(e.container);
        if ((e.change === 'started' || e.change === 'moved') && e.address !== null) {
          present.set(e.address, e);
          told.delete(e.address);
        }
        compare(e.at, -Infinity);
      } else if (e.type === 'told') tell(e.project, e.address, e.at);
      else if (e.type === 'reporting') sending.set(e.task, e);
      else if (e.type === 'reported') {
        const { project, address } = sending.get(e.task) ?? { project: '', address: null };
        if (address !== null) tell(project, address, e.at);
      } else if (e.type === 'routed') {
        const owners = groupBy(Object.entries(e.routes), ([, address]) => address);
        for (const [address, projects] of owners)
          if (projects.length > 1)
            broken(
              'own-host',
              e.at,
              `${e.proxy} has one address, ${address}, for the projects ` +
                projects.map(([id]) => id).join(' and '),
            );
        served.set(e.proxy, e.routes);
        compare(e.at, (e.asked ?? e.at) - toldMs, e.proxy);
      } else if (e.type === 'shown' && e.by !== e.project)
        broken('own-host', e.at, `the host of project ${e.project} was answered by ${e.by}`);
      else if (e.type === 'ended') compare(e.at, e.at);
  }
}

/** Periods in which no control plane served, after the first one began to serve. */
function gapsOf(events: readonly Of<'serving'>[]): { from: number; to: number }[] {
  const up = new Set<string>();
  const gaps: { from: number; to: number }[] = [];
  let from: number | null = null;
  for (const e of events) {
    if (e.up) up.add(e.name);
    else up.delete(e.name);
    if (up.size > 0 && from !== null) {
      gaps.push({ from, to: e.at });
      from = null;
    } else if (up.size === 0) from ??= e.at;
  }
  return from === null ? gaps : [...gaps, { from, to: Infinity }];
}

function groupBy<T>(items: readonly T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group === undefined) groups.set(key(item), [item]);
    else group.push(item);
  }
  return groups;
}

function upsert(map: Map<string, Set<string>>, key: string): Set<string> {
  const set = map.get(key) ?? new Set<string>();
  map.set(key, set);
  return set;
}
