/** Converts rows of notifications and of their deliveries to records. */
import {
  type Message,
  type NoticeRecord,
  type NotificationRecord,
} from '../../domain/notifications/notifications.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Row } from '../engine/tables.ts';

export const notificationOf = ({
  events,
  projects,
  after: _,
  ...row
}: Row<'notifications'>): NotificationRecord => ({
  ...row,
  on: JSON.parse(events) as NotificationRecord['on'],
  projects: JSON.parse(projects) as string[],
});

export const noticeOf = (row: Row<'notices'>): NoticeRecord => ({
  ...row,
  message: JSON.parse(row.message) as Message,
  received: JSON.parse(row.received) as string[],
  is_sent: row.is_sent === 1,
});

export const noNotification = (): DomainError =>
  new DomainError('not_found', 'no notification has this id or name');
