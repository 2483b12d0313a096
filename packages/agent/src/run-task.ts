/**
 * One attempt at one task, from claim to report (ARCHITECTURE.md "Tasks, leases, fencing").
 *
 *   claim ──> work ──> flush the log ──> report ──> taken (200)
 *     │ 404, 409          │                 │ 404, 409: somebody else has it: discard the product
 *     └> not ours         └ meanwhile: renew at a third of the lease. 409 or gone from the list: `lost`; asked to cancel: `cancelled`
 *
 * `cancelled` is reported, `lost` and `shutdown` are not: in those the work clears up after itself and that is all.
 * A report is tried until it was answered. One that this process does not live to deliver is made again: the task is offered again.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { FAILURES } from '@berth/wire/errors';
import type { Task, TaskClaim, TaskReport } from '@berth/wire/task';
import { createLogShipper, type LogShipper } from './log-shipper.ts';
import type { TaskEnd, TaskMeter } from './metrics.ts';
import { createProgressSender, type ProgressSender } from './progress-sender.ts';
import { untilAnswered } from './retry.ts';
import { pause, Stopped } from './stopped.ts';
import type { Handlers, Product, TaskContext } from './tasks/task.ts';
import { nothingToDiscard } from './tasks/task.ts';
import { taskErrorOf } from './tools/failures.ts';

/** reported: answered 200; lost: 404 or 409 somewhere; shutdown: given up, it will be offered again. */
export type TaskOutcome = 'reported' | 'lost' | 'shutdown';
export type TaskRun = {
  task: Task;
  done: Promise<TaskOutcome>;
  /** While it works; a report under way is not stopped by `lost`: its own answer decides. */
  stop(why: Stopped['why']): void;
};
export type RunTaskDeps = {
  client: Client;
  handlers: Handlers;
  log: Logger /** Of each failure of the work, by its code. */;
  onFailure?: (code: string) => void;
  meter?: TaskMeter;
};

const FINAL_FLUSH_MS = 15_000;
const CANCELLED = { code: 'cancelled', message: `${FAILURES.cancelled}.` };

export function runTask(task: Task, { client, handlers, log: parent, onFailure, meter }: RunTaskDeps): TaskRun {
  const log = parent.child({ task: task.id, kind: task.kind, deployment: task.deployment_id });
  const work = new AbortController();
  /** Ends the claim and the report as well: only a shutdown does. */
  const life = new AbortController();
  const stop = (why: Stopped['why']): void => {
    work.abort(new Stopped(why));
    if (why === 'shutdown') life.abort(new Stopped(why));
  };
  const params = { id: task.id };
  /** Of what was reported. */
  let reported: TaskEnd = 'failed';
  let tellEnd: (end: TaskEnd) => void = () => undefined;

  async function attempt(): Promise<TaskOutcome> {
    await failPoint('agent.claim.before', () => task.kind);
    const claim = await untilAnswered(() => client.call('agentStart', { params, signal: life.signal }), {
      signal: life.signal,
      onFailure: (err) => log.warn({ err }, 'cannot claim yet'),
    });
    const headers = { 'x-lease-token': claim.lease_token };
    log.info({ attempt: claim.attempt }, 'task begun');
    if (meter !== undefined) tellEnd = meter.taskBegan(task.kind);
    await failPoint('agent.claim.after', () => task.kind);
    const shipper = createLogShipper({
      send: async (first, lines) => {
        await failPoint('agent.logs.before');
        await untilAnswered(() => client.call('agentLogs', { params, headers, body: { first, lines }, signal: life.signal }), {
          signal: life.signal,
        });
        await failPoint('agent.logs.after');
      },
      onDropped: (err) => {
        if (isOver(err)) work.abort(new Stopped('lost'));
        else if (!life.signal.aborted) log.warn({ err }, 'log lines refused; they are dropped');
      },
    });
    const renewing = new AbortController();
    const renewal = renew(claim, renewing.signal, headers);
    const progress = createProgressSender((datasets, signal) =>
      client.call('agentProgress', { params, headers, body: { datasets }, signal }),
    );
    if (task.cancel_requested) stop('cancelled');
    try {
      let product = await perform(claim, shipper, progress);
      const why = work.signal.aborted ? (work.signal.reason as Stopped).why : null;
      // A container that is up stays up: the task is offered again and goes on with it.
      if (why === 'shutdown') return 'shutdown';
      if (why === 'lost') {
        await discard(product);
        return 'lost';
      }
      if (why === 'cancelled' && product.report.status === 'completed') {
        // Asked for in the last moment: what nobody wants any more is not handed over.
        await discard(product);
        product = failed(CANCELLED);
      }
      await progress.flush();
      await shipper.flush(AbortSignal.any([life.signal, AbortSignal.timeout(FINAL_FLUSH_MS)]));
      return await deliver(product, headers);
    } finally {
      progress.stop();
      renewing.abort();
      await renewal;
    }
  }

  async function perform(claim: TaskClaim, shipper: LogShipper, progress: ProgressSender): Promise<Product> {
    const context: TaskContext = {
      attempt: claim.attempt,
      signal: work.signal,
      log: (line) => shipper.push(line),
      say: (step, text) => {
        for (const line of text.split('\n')) shipper.push({ stream: 'system', step, text: line });
      },
      progress: progress.push,
    };
    try {
      work.signal.throwIfAborted();
      return await handle(handlers, task, context);
    } catch (error) {
      if (work.signal.aborted && error === work.signal.reason) return failed(CANCELLED);
      const failure = taskErrorOf(error);
      log.warn({ err: error, code: failure.code }, 'task failed');
      onFailure?.(failure.code);
      context.say('failed', failure.message);
      return failed(failure);
    }
  }

  async function renew(claim: TaskClaim, signal: AbortSignal, headers: Record<string, string>): Promise<void> {
    let lease: Pick<TaskClaim, 'lease_expires_at' | 'lease_seconds'> = claim;
    for (;;) {
      try {
        await pause(renewIn(lease), signal);
        const answer = await untilAnswered(() => client.call('agentRenew', { params, headers, signal }), { signal, maxMs: 3_000 });
        await failPoint('agent.renew.after');
        lease = answer;
        if (answer.cancel_requested) stop('cancelled');
      } catch (error) {
        if (signal.aborted) return;
        if (isOver(error)) return stop('lost');
        log.error({ err: error }, 'the lease could not be renewed; tried again');
      }
    }
  }

  async function deliver(product: Product, headers: Record<string, string>): Promise<TaskOutcome> {
    const complete = (report: TaskReport) =>
      untilAnswered(() => client.call('agentComplete', { params, headers, body: report, signal: life.signal }), {
        signal: life.signal,
        onFailure: (err, waitMs) => log.warn({ err, waitMs }, 'report not delivered yet'),
      });
    try {
      await failPoint('agent.report.before', () => task.kind);
      await complete(product.report);
      reported = endOf(product.report);
      await failPoint('agent.report.after', () => task.kind);
    } catch (error) {
      if (life.signal.aborted) throw error;
      await discard(product);
      if (isOver(error)) {
        log.info({ err: error }, 'the report came too late; what was made is thrown away');
        return 'lost';
      }
      // Our report is wrong: the task must end all the same.
      log.error({ err: error }, 'the control plane refused the report');
      await complete(
        failed({ code: 'task_failed', message: `${FAILURES.task_failed}: its report was refused: ${String(error)}`.slice(0, 4000) }).report,
      );
    }
    log.info({ status: product.report.status }, 'task reported');
    return 'reported';
  }

  async function discard(product: Product): Promise<void> {
    await product.discard().catch((error: unknown) => log.error({ err: error }, 'what the task made could not be removed'));
  }

  const done = attempt().catch((error: unknown): TaskOutcome => {
    if (life.signal.aborted) return 'shutdown';
    if (!isOver(error)) log.error({ err: error }, 'the task could not be run');
    return 'lost';
  });
  void done.then((outcome) => tellEnd(outcome === 'reported' ? reported : outcome));
  return { task, done, stop };
}

/** 404 unknown task; 409 stale lease, task over. */
const isOver = (error: unknown): boolean => error instanceof ApiError && (error.status === 404 || error.status === 409);

function endOf({ status, result }: TaskReport): TaskEnd {
  if (status === 'completed') return 'completed';
  return (result as { error?: { code?: unknown } } | null)?.error?.code === CANCELLED.code ? 'cancelled' : 'failed';
}

const failed = (error: { code: string; message: string }): Product => ({
  report: { status: 'failed', result: { error } },
  discard: nothingToDiscard,
});

/**
 * A third of the lease, by its length: the two clocks may be hours apart. A control plane that does not say the length is taken
 * by its clock, between 1 and 20 s.
 */
export function renewIn(lease: Pick<TaskClaim, 'lease_expires_at' | 'lease_seconds'>, now = Date.now()): number {
  if (lease.lease_seconds !== undefined) return Math.max(250, (lease.lease_seconds * 1000) / 3);
  const left = Date.parse(lease.lease_expires_at) - now;
  return Math.min(20_000, Math.max(1_000, Number.isFinite(left) ? left / 3 : 1_000));
}

function handle(handlers: Handlers, task: Task, context: TaskContext): Promise<Product> {
  switch (task.kind) {
    case 'build':
      return handlers.build(task, context);
    case 'deploy':
      return handlers.deploy(task, context);
    case 'retire':
      return handlers.retire(task, context);
    case 'sync':
      return handlers.sync(task, context);
    default:
      return unknownKind(task);
  }
}

/** A newer control plane may know more kinds than we do. */
function unknownKind(task: never): Promise<Product> {
  return Promise.reject(new Error(`this agent does not know tasks of kind ${(task as Task).kind}; update it`));
}
