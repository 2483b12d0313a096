/**
 * Sends notifications. Several control planes can run this loop, because each delivery is claimed.
 * A run starts due deliveries without waiting for them, so a slow target does not delay others.
 */
import type { Telemetry } from '../domain/platform/telemetry.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { Logger } from '@berth/kit/log';
import {
  isFinal,
  MAX_NOTIFICATIONS,
  NOTICE_CLAIM_MS,
  noticePause,
  type NoticeRecord,
  type NotificationStore,
  type SendNotice,
} from '../domain/notifications/notifications.ts';

export type Deps = {
  notifications: Pick<
    NotificationStore,
    'claim' | 'compose' | 'giveUp' | 'retry' | 'sent' | 'take'
  >;
  /** Uptime clock, used for every deadline. */
  uptime: Pick<UptimeClock, 'now'>;
  telemetry?: Pick<Telemetry, 'emit'>;
  /** Null: notifications are not sent. */
  sendNotice: SendNotice | null;
  log: Logger;
  now: () => number;
};

export const notifications = ({ notifications, sendNotice, uptime, now, telemetry, log }: Deps) => {
  const running = new Set<Promise<void>>();

  return async (signal: AbortSignal): Promise<void> => {
    if (sendNotice === null) return;
    const at = (await uptime.now()).at;
    await notifications.compose({ now: now(), uptime: at });
    const free = MAX_NOTIFICATIONS - running.size;
    if (free <= 0) return;
    const claimed = await notifications.claim({ uptime: at, until: at + NOTICE_CLAIM_MS }, free);
    for (const notice of claimed) {
      const { notification_id } = notice;
      // Only log the error: the claim expires, and the delivery is sent again.
      const one = deliver(notice, sendNotice, signal).catch((error: unknown) => {
        if (!signal.aborted)
          log.error({ err: error, notification_id }, 'sending a notification failed; will retry');
      });
      running.add(one);
      void one.finally(() => running.delete(one));
    }
  };

  async function deliver(
    claimed: NoticeRecord,
    send: NonNullable<typeof sendNotice>,
    signal: AbortSignal,
  ): Promise<void> {
    // Read message and target together: after a change, people who know the new target might not be
    // able to see the projects of the older message.
    const taken = await notifications.take(claimed);
    if (taken === null) return;
    const { notification } = taken;
    const notice = { ...taken.notice, target: notification.target };
    const { notification_id, tries } = notice;
    const answer = await send(notification, notice, signal);
    if (signal.aborted) return;
    if (answer.isSent) {
      telemetry?.emit({ what: 'notification', outcome: 'sent' });
      await notifications.sent(notice, answer.note, now());
      return;
    }
    const { error, status, retryAfterMs, received, isHopeless } = answer;
    const nextAt = (await uptime.now()).at + noticePause(tries, retryAfterMs, Math.random());
    if (isHopeless !== true && !isFinal(status, tries) && nextAt < notice.give_up_at) {
      telemetry?.emit({ what: 'notification', outcome: 'retried' });
      await notifications.retry(notice, nextAt, error, received, now());
      return;
    }
    log.warn(
      { notification_id, name: notification.name, problem: error },
      'sending a notification failed; gave up',
    );
    telemetry?.emit({ what: 'notification', outcome: 'given up' });
    await notifications.giveUp(notice, error, now());
  }
};
