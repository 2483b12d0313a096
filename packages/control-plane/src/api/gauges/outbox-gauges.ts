/** Gauges of waiting deliveries, commit statuses and notifications. */
import type { StatusStore } from '../../domain/git/commit-statuses.ts';
import type { HookStore } from '../../domain/git/hooks.ts';
import type { NotificationStore } from '../../domain/notifications/notifications.ts';
import type { GaugeRow } from './gauge-row.ts';

export type Deps = {
  hooks: Pick<HookStore, 'countWaiting'>;
  commitStatuses: Pick<StatusStore, 'countWaiting'>;
  notifications: Pick<NotificationStore, 'counts'>;
  now: () => number;
};

export const outboxGauges = ({ hooks, commitStatuses, notifications, now }: Deps): GaugeRow[] => [
  {
    name: 'berth_hook_deliveries_waiting',
    help: 'Deliveries that wait for a check of their branch',
    labels: [],
    read: async () => [{ labels: {}, value: (await hooks.countWaiting()).count }],
  },
  {
    name: 'berth_hook_delivery_oldest_seconds',
    help: 'Age of the oldest delivery that waits for a check of its branch; 0 if none waits',
    labels: [],
    async read() {
      const { oldest_at } = await hooks.countWaiting();
      return [
        { labels: {}, value: oldest_at === null ? 0 : Math.max(0, now() - oldest_at) / 1000 },
      ];
    },
  },
  {
    name: 'berth_commit_statuses_waiting',
    help: 'Commit statuses that are not sent yet',
    labels: [],
    read: async () => [{ labels: {}, value: (await commitStatuses.countWaiting()).count }],
  },
  {
    name: 'berth_commit_status_oldest_seconds',
    help: 'Age of the oldest commit status that is not sent yet; 0 if none waits',
    labels: [],
    async read() {
      const { oldest_at } = await commitStatuses.countWaiting();
      return [
        { labels: {}, value: oldest_at === null ? 0 : Math.max(0, now() - oldest_at) / 1000 },
      ];
    },
  },
  {
    name: 'berth_notifications_failing',
    help: 'Notifications whose last delivery failed',
    labels: [],
    read: async () => [{ labels: {}, value: (await notifications.counts()).failing }],
  },
  {
    name: 'berth_notifications_waiting',
    help: 'Deliveries of notifications that are not finished',
    labels: [],
    read: async () => [{ labels: {}, value: (await notifications.counts()).waiting }],
  },
];
