/**
 * Notifications: targets for problem reports, the changes that each reports, and the outbox of
 * deliveries.
 */
import type { NoticeType, NotificationEvent, NotificationKind } from '@berth/wire/notification';
import { PROBLEM_KINDS } from '@berth/wire/notification';
import type { ProjectAccess } from '../identity/access.ts';
import type { NameFilter, Page, Paged } from '../platform/page.ts';
import type { ProblemChange, Seen } from './problems.ts';

export type NotificationRecord = {
  id: string;
  name: string;
  kind: NotificationKind;
  /** Sealed by the vault, like `secret`. */
  target: string;
  shown: string;
  secret: string | null;
  on: NotificationEvent[];
  projects: string[];
  last_sent_at: number | null;
  failing_since: number | null;
  problem: string | null;
  created_at: number;
  updated_at: number;
};
export type NewNotification = Pick<
  NotificationRecord,
  'id' | 'name' | 'kind' | 'target' | 'shown' | 'secret' | 'on' | 'projects'
>;
export type NotificationChange = Partial<
  Pick<NotificationRecord, 'name' | 'target' | 'shown' | 'on' | 'projects'>
>;

/** One item of a message: the beginning or the end of a problem. */
export type NoticeItem = {
  kind: ProblemChange['kind'];
  subject: string;
  is_over: boolean;
  seen: Seen;
  opened_at: number;
  at: number;
};
/**
 * Content of one delivery, independent of the kind of target. `total`: number of changes; `items`
 * contains the first of them. `range`: sequence numbers of the changes; absent for a test.
 */
export type Message = {
  type: NoticeType;
  title: string;
  items: NoticeItem[];
  total: number;
  at: number;
  range?: { after: number; to: number | null };
};

export type NoticeRecord = {
  seq: number;
  id: string;
  notification_id: string;
  message: Message;
  /** Number of failed attempts. */
  tries: number;
  /** By the uptime clock, like `give_up_at` and `claimed_until`. */
  next_at: number;
  give_up_at: number;
  claimed_until: number | null;
  /** Recipients that have already received the e-mail. */
  received: string[];
  created_at: number;
  done_at: number | null;
  is_sent: boolean;
  error: string | null;
};
export type HeldNotice = Pick<
  NoticeRecord,
  'seq' | 'claimed_until' | 'tries' | 'give_up_at' | 'notification_id'
>;
/**
 * `target`: sealed target of this attempt. If a user replaces the target meanwhile, the result of
 * the attempt does not affect the notification.
 */
export type NoticeClaim = HeldNotice & Pick<NotificationRecord, 'target'>;

/**
 * `status`: status of the HTTP response; 0 without a response. `received`: recipients of an e-mail
 * that need no further attempt.
 */
export type SendAnswer =
  | { isSent: true; note: string | null }
  | {
      isSent: false;
      error: string;
      status: number;
      retryAfterMs: number;
      received: string[];
      isHopeless?: true;
    };
/** Makes one attempt to send a delivery, within a bounded time. Throws secrets_locked. */
export type SendNotice = (
  notification: NotificationRecord,
  notice: NoticeRecord,
  signal: AbortSignal,
) => Promise<SendAnswer>;

export type NotificationStore = {
  /**
   * `access`: only notifications that name projects and whose projects all exist and are visible to
   * this caller.
   */
  list(page: Page, filter: NameFilter, access?: ProjectAccess): Promise<Paged<NotificationRecord>>;
  idOf(idOrName: string): Promise<string | null>;
  /** Throws not_found. */
  get(id: string): Promise<NotificationRecord>;
  /**
   * Creates a notification, which reports changes from now on. Throws validation (`name` is taken,
   * or MAX_NOTIFICATIONS exist).
   */
  create(notification: NewNotification, now: number): Promise<NotificationRecord>;
  patch(id: string, change: NotificationChange, now: number): Promise<NotificationRecord>;
  remove(id: string): Promise<void>;

  /**
   * Creates deliveries for changes that notifications have not reported yet. Each notification has
   * at most one unfinished delivery. Returns the number of new deliveries.
   */
  compose(clock: { now: number; uptime: number }): Promise<number>;
  /** Claims due deliveries. */
  claim(at: { uptime: number; until: number }, most: number): Promise<NoticeRecord[]>;
  /**
   * Returns the current state of a claimed delivery and its notification in one snapshot; null if
   * the claim or the notification no longer exists.
   */
  take(
    claim: HeldNotice,
  ): Promise<{ notification: NotificationRecord; notice: NoticeRecord } | null>;
  /** Adds a test delivery that is already claimed. Throws too_many_requests. */
  addTest(id: string, message: Message, until: number): Promise<NoticeRecord>;
  /**
   * Ends a claim, as do `retry` and `giveUp`. Each returns null and changes nothing if another
   * claim replaced it. `received` replaces the stored list. If the target changed during a failed
   * attempt, the delivery to the new target is due at once.
   */
  sent(claim: NoticeClaim, note: string | null, now: number): Promise<NoticeRecord | null>;
  retry(
    claim: NoticeClaim,
    nextAt: number,
    error: string,
    received: readonly string[],
    now: number,
  ): Promise<NoticeRecord | null>;
  giveUp(claim: NoticeClaim, error: string, now: number): Promise<NoticeRecord | null>;
  deliveries(id: string, page: Page): Promise<Paged<NoticeRecord>>;
  /** Counts unfinished deliveries, and notifications with failing deliveries. */
  counts(): Promise<{ waiting: number; failing: number }>;
  /** Removes old deliveries. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};

/**
 * Maximum number of notifications. One process sends to all of them concurrently, so that a slow
 * target does not delay the others.
 */
export const MAX_NOTIFICATIONS = 200;
/**
 * Duration of a claim. Must exceed the duration of an attempt, including the wait of an e-mail for
 * other e-mails.
 */
export const NOTICE_CLAIM_MS = 120_000;
/**
 * Berth retries a delivery for this long, so that a target that is down for a day still gets it.
 */
export const NOTICE_LIFETIME_MS = 3 * 86_400_000;
export const NOTICE_KEPT_MS = 30 * 86_400_000;
export const KEPT_NOTICES = 200;
/** Changes within this time are batched into one message. */
export const COLLECT_MS = 2_000;
/** Maximum number of changes that get separate messages; more become a digest. */
export const SINGLE_MOST = 3;
export const DIGEST_ITEMS = 10;
/**
 * Maximum number of messages of one notification within PACE_MS. Further changes wait and become a
 * digest.
 */
export const PACE = 10;
export const PACE_MS = 10 * 60_000;
export const TESTS_A_MINUTE = 6;

const BACKOFF_MS = { first: 5_000, most: 3_600_000 };
/**
 * Returns the backoff before the next attempt in whole ms. A target can request a longer one.
 * `random`: 0 to 1, for jitter.
 */
export function noticePause(tries: number, retryAfterMs: number, random: number): number {
  const pause = BACKOFF_MS.first * 3 ** Math.min(tries, 8) * (0.75 + random / 2);
  return Math.round(Math.min(BACKOFF_MS.most, Math.max(pause, retryAfterMs)));
}

/** HTTP statuses that a retry rarely changes: the address is wrong or was revoked. */
const FINAL = [400, 401, 403, 404, 405, 410, 413, 422];
const TRIES_IF_FINAL = 4;
export const isFinal = (status: number, tries: number): boolean =>
  FINAL.includes(status) && tries + 1 >= TRIES_IF_FINAL;

type Filter = Pick<NotificationRecord, 'on' | 'projects' | 'created_at'>;

/**
 * Returns whether a notification reports this change. It reports the end of a problem only if it
 * could report the beginning.
 */
export function concerns(
  { on, projects, created_at }: Filter,
  change: Pick<ProblemChange, 'kind' | 'is_over' | 'opened_at'>,
  ids: () => string[],
) {
  if (change.is_over) {
    if (!on.includes('recovered') || change.opened_at < created_at) return false;
    const ofKinds = PROBLEM_KINDS.some((kind) => on.includes(kind));
    if (ofKinds && !on.includes(change.kind)) return false;
  } else if (!on.includes(change.kind)) return false;
  return projects.length === 0 || ids().some((id) => projects.includes(id));
}

/** Returns the message for changes. `items`: the first of `total` changes, at least one. */
export function messageOf(items: readonly NoticeItem[], total: number, now: number): Message {
  const [first] = items;
  if (total === 1 && first !== undefined) {
    const type = first.is_over ? 'recovered' : 'problem';
    return { type, title: first.seen.title, items: [first], total, at: first.at };
  }
  const over = items.filter((item) => item.is_over).length;
  const title =
    total > items.length
      ? `${total} problems began or ended`
      : [
          over < total ? `${total - over} ${total - over === 1 ? 'problem' : 'problems'}` : '',
          over > 0 ? `${over} over` : '',
        ]
          .filter((part) => part !== '')
          .join(', ');
  return { type: 'digest', title, items: [...items], total, at: now };
}

export const testMessage = (name: string, now: number): Message => ({
  type: 'test',
  title: `Test of the notification ${name}`,
  items: [],
  total: 0,
  at: now,
});
