/**
 * Sends commit statuses to forges. Several control planes can run this loop, because each status is
 * claimed. A status never changes a deployment.
 */
import { failPoint } from '@berth/kit/fail-point';
import { type StatusRecord, statusPause, type StatusStore } from '../domain/git/commit-statuses.ts';
import {
  type ForgeAnswer,
  isSetAlready,
  statusRequest,
  statusTarget,
} from '../domain/git/forge-api.ts';
import type { DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { HookStore } from '../domain/git/hooks.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { Telemetry } from '../domain/platform/telemetry.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { ProjectStore } from '../domain/projects/project-store.ts';
import type { StatusSettings } from './settings.ts';
import type { Logger } from '@berth/kit/log';

/** Lifetime of a claim in ms, longer than a request to a forge can take. */
const CLAIM_MS = 30_000;
const AT_ONCE = 20;
/**
 * Statuses that a retry rarely changes. They are retried a few times, because the forge might not
 * know a new commit everywhere yet.
 */
const FINAL = [400, 401, 403, 404, 405, 410, 422];
const TRIES_IF_FINAL = 3;
const MAX_ERROR = 300;

export type Deps = {
  commitStatuses: Pick<
    StatusStore,
    'claim' | 'drop' | 'giveUp' | 'repeatNewest' | 'retry' | 'sent'
  >;
  projects: Pick<ProjectStore, 'getMany'>;
  deployments: Pick<DeploymentStore, 'getMany'>;
  hooks: Pick<HookStore, 'get'>;
  changes: Pick<Changes, 'notify'>;
  /** Uptime clock, used for every deadline. */
  uptime: Pick<UptimeClock, 'now'>;
  telemetry?: Pick<Telemetry, 'emit'>;
  /** Null: commit statuses are not sent. */
  statuses: StatusSettings | null;
  log: Logger;
  now: () => number;
};

export const commitStatuses =
  ({
    commitStatuses,
    projects,
    deployments,
    hooks,
    statuses,
    uptime,
    now,
    changes,
    telemetry,
    log,
  }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    if (statuses === null) return;
    const { send, tokenOf, publicUrl } = statuses;
    const at = (await uptime.now()).at;
    const claimed = await commitStatuses.claim({ uptime: at, until: at + CLAIM_MS }, AT_ONCE);
    await Promise.all(
      claimed.map(async (status) => {
        try {
          await deliver(status);
        } catch (error) {
          // Only log the error: the claim expires, and the status is sent again.
          log.error(
            { err: error, deployment_id: status.deployment_id },
            'sending a commit status failed; will retry',
          );
        }
      }),
    );

    async function deliver(status: StatusRecord): Promise<void> {
      const { project_id, seq, state, commit, description, deployment_id } = status;
      const [project] = await projects.getMany([project_id]);
      const token = project === undefined ? null : await tokenOf(project_id);
      // Drop a status of a commit from before a change of `git_url`: the present forge does not
      // know the commit.
      const [deployment] = await deployments.getMany([deployment_id]);
      if (project !== undefined && deployment?.settings.git_url !== project.git_url)
        return commitStatuses.drop(seq);
      const hook = await hooks.get(project_id);
      const target =
        project === undefined || token === null
          ? null
          : statusTarget(project.git_url, hook?.forge ?? null, token.apiUrl);
      if (project === undefined || token === null || target === null)
        return commitStatuses.drop(seq);
      const targetUrl = `${publicUrl.replace(/\/$/, '')}/deployments/${deployment_id}`;
      const message = { state, commit, context: `berth/${project.name}`, description, targetUrl };
      await failPoint('status.claimed');
      const request = statusRequest(target, message, token);
      const answer = await send(request, signal);
      if (signal.aborted) return;
      if (
        (answer.status >= 200 && answer.status < 300) ||
        isSetAlready(target.forge, answer.status, answer.text)
      ) {
        await failPoint('status.sent');
        telemetry?.emit({ what: 'commit status', outcome: 'sent' });
        return ended(await commitStatuses.sent(status, now()));
      }
      const problem = problemOf(target.base.host, answer, [
        token.token,
        request.headers['authorization']?.split(' ').at(-1) ?? '',
      ]);
      const nextAt = (await uptime.now()).at + statusPause(status.tries, answer.retryAfterMs);
      const isFinal = FINAL.includes(answer.status) && status.tries + 1 >= TRIES_IF_FINAL;
      if (!isFinal && nextAt < status.give_up_at) {
        telemetry?.emit({ what: 'commit status', outcome: 'retried' });
        return ended(await commitStatuses.retry(status, nextAt, problem));
      }
      log.warn({ project_id, deployment_id, problem }, 'sending a commit status failed; gave up');
      telemetry?.emit({ what: 'commit status', outcome: 'given up' });
      await ended(await commitStatuses.giveUp(status, problem, now()));
      changes.notify(`logs:${deployment_id}`, 'events');

      /**
       * If the claim was lost, this process was stalled, and a newer status of the commit might
       * have been sent before this one. Send the newest status again.
       */
      async function ended(isMine: boolean): Promise<void> {
        if (isMine) return;
        await commitStatuses.repeatNewest(status, (await uptime.now()).at);
        changes.notify('work');
      }
    }
  };

/**
 * Returns the problem in one line. The answer of a forge is not trusted: the text is shortened and
 * loses control characters and secrets, because a forge can repeat the request with its token.
 */
function problemOf(
  host: string,
  { status, text: answered, isInternal }: ForgeAnswer,
  secrets: readonly string[],
): string {
  // Hide the answer of an internal service: a developer chose the address and must not read it.
  const text = isInternal === true ? '' : answered;
  const shown = secrets
    .filter((secret) => secret !== '')
    .reduce((rest, secret) => rest.replaceAll(secret, '***'), text);
  const said = shown
    .replaceAll(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, MAX_ERROR)
    .toWellFormed();
  return status === 0
    ? `${host}: ${said}`
    : `${host} answered ${status}${said === '' ? '' : `: ${said}`}`;
}
