/** Makes one attempt to send a delivery of a notification. */
import type {
  NoticeRecord,
  NotificationRecord,
  SendAnswer,
  SendNotice,
} from '../domain/notifications/notifications.ts';
import { recipientsOf } from '../domain/notifications/notice-target.ts';
import type { Vault } from '../domain/secrets/vault.ts';
import type { SendMail } from './mail.ts';
import type { Post, PostAnswer } from './post.ts';
import { discordBody, mailOf, signature, slackBody, webhookBody } from './render.ts';

const MAX_ERROR = 300;
/** Prefix in `received` of a recipient that the server refused permanently. */
const REFUSED = '!';

export type SenderSettings = {
  vault: Pick<Vault, 'open'>;
  post: Post;
  /** Null if SMTP_URL is not set. */
  mail: SendMail | null;
  publicUrl: string;
  now: () => number;
};

export function createSender({ vault, post, mail, publicUrl, now }: SenderSettings): SendNotice {
  return async (notification, notice, signal) => {
    const target = (
      await vault.open('notifications', `target:${notification.id}`, notification.target)
    ).toString();
    if (notification.kind === 'email') return byMail(target, notification, notice, signal);
    const { body, headers } = await requestOf(notification, notice);
    const url = new URL(target);
    const answer = await post(
      url,
      { ...headers, 'content-type': 'application/json', 'user-agent': 'berth' },
      body,
      signal,
    );
    if (answer.status >= 200 && answer.status < 300) return { isSent: true, note: null };
    const { status, retryAfterMs } = answer;
    return { isSent: false, error: problemOf(url, answer), status, retryAfterMs, received: [] };
  };

  async function requestOf(
    { id, kind, secret }: NotificationRecord,
    { id: noticeId, message }: NoticeRecord,
  ): Promise<{ body: string; headers: Record<string, string> }> {
    if (kind === 'slack') return { body: slackBody(message, publicUrl), headers: {} };
    if (kind === 'discord') return { body: discordBody(message, publicUrl), headers: {} };
    const body = webhookBody(message, publicUrl);
    const timestamp = Math.floor(now() / 1000);
    const key =
      secret === null ? '' : (await vault.open('notifications', `secret:${id}`, secret)).toString();
    return {
      body,
      headers: {
        'webhook-id': noticeId,
        'webhook-timestamp': String(timestamp),
        'webhook-signature': signature(key, noticeId, timestamp, body),
      },
    };
  }

  async function byMail(
    target: string,
    _: NotificationRecord,
    notice: NoticeRecord,
    signal: AbortSignal,
  ): Promise<SendAnswer> {
    const to = recipientsOf(target);
    // The target might have had other recipients during a previous attempt.
    const before = notice.received.filter((entry) => to.includes(entry.replace(REFUSED, '')));
    const done = new Set(before.map((entry) => entry.replace(REFUSED, '')));
    const open = to.filter((recipient) => !done.has(recipient));
    const failed = (error: string, status: number, received: string[]): SendAnswer => ({
      isSent: false,
      error: tidy(error),
      status,
      retryAfterMs: 0,
      received,
    });
    if (mail === null)
      return failed('SMTP_URL is not set on the control plane', 0, notice.received);
    const answer =
      open.length === 0
        ? { accepted: [], refused: [], error: null }
        : await mail({ id: notice.id, ...mailOf(notice.message, publicUrl), to }, open, signal);
    const lost = answer.refused.filter((refusal) => refusal.isPermanent);
    const received = [
      ...before,
      ...answer.accepted,
      ...lost.map(({ recipient }) => `${REFUSED}${recipient}`),
    ];
    if (answer.error !== null && answer.refused.length === 0)
      return failed(`SMTP: ${answer.error.why}`, answer.error.isPermanent ? 422 : 0, received);
    const later = answer.refused.filter((refusal) => !refusal.isPermanent);
    const refusals = (some: typeof lost): string =>
      some.map(({ recipient, why }) => `${recipient}: ${why}`).join('; ');
    if (later.length > 0)
      return failed(`the SMTP server does not take it for ${refusals(later)}`, 0, received);
    const refused = received
      .filter((entry) => entry.startsWith(REFUSED))
      .map((entry) => entry.slice(REFUSED.length));
    const why = tidy(
      `the SMTP server refused ${lost.length > 0 ? refusals(lost) : refused.join(', ')}`,
    );
    // The server refused all recipients permanently, so a retry is useless.
    if (refused.length > 0 && received.every((entry) => entry.startsWith(REFUSED)))
      return { isSent: false, error: why, status: 0, retryAfterMs: 0, received, isHopeless: true };
    return { isSent: true, note: refused.length === 0 ? null : why };
  }
}

/**
 * Returns one human-readable line. The answer of a target is untrusted and might repeat the secret
 * address, so parts of the address are masked.
 */
function problemOf({ host, pathname, search }: URL, { status, text }: PostAnswer): string {
  const parts = [`${pathname}${search}`, pathname, ...pathname.split('/')].filter(
    (part) => part.length >= 8,
  );
  const said = tidy(parts.reduce((rest, part) => rest.replaceAll(part, '***'), text));
  if (status === 0) return tidy(`${host}: ${said}`);
  if (status >= 300 && status < 400)
    return (
      `${host} answered ${status}: Berth follows no redirects, so the target must be the final ` +
      'address'
    );
  return tidy(`${host} answered ${status}${said === '' ? '' : `: ${said}`}`);
}

const tidy = (text: string): string =>
  text
    .replaceAll(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, MAX_ERROR)
    .toWellFormed();
