/** Sends e-mails through the SMTP server of the operator. One message goes to all recipients that still need it. */
import type { Transporter } from 'nodemailer';
import type SMTPTransport from 'nodemailer/lib/smtp-transport/index.js';

export type Mail = { id: string; subject: string; text: string; to: readonly string[] };
export type Refusal = { recipient: string; why: string; isPermanent: boolean };
/** `error`: nobody got it. */
export type MailAnswer = { accepted: string[]; refused: Refusal[]; error: { why: string; isPermanent: boolean } | null };
export type SendMail = (mail: Mail, recipients: readonly string[], signal: AbortSignal) => Promise<MailAnswer>;

const CONNECT_MS = 10_000;
const TOTAL_MS = 30_000;
/** Connections to the server at a time. */
const AT_ONCE = 5;

type SmtpError = Error & { responseCode?: number; recipient?: string; rejectedErrors?: SmtpError[]; code?: string };
const isPermanent = ({ responseCode = 0 }: SmtpError): boolean => responseCode >= 500 && responseCode < 600;

/** Never rejects. `totalMs`: for tests. */
export function createSendMail({ url, from, totalMs = TOTAL_MS }: { url: string; from: string; totalMs?: number }): SendMail {
  let running = 0;
  const waiting: (() => void)[] = [];
  async function slot<T>(run: () => Promise<T>): Promise<T> {
    if (running >= AT_ONCE) await new Promise<void>((resolve) => waiting.push(resolve));
    else running += 1;
    try {
      return await run();
    } finally {
      const next = waiting.shift();
      if (next === undefined) running -= 1;
      else next();
    }
  }

  async function open(): Promise<Transporter<SMTPTransport.SentMessageInfo>> {
    // Most installations send no e-mail.
    const { createTransport } = await import('nodemailer');
    const times = { connectionTimeout: CONNECT_MS, greetingTimeout: CONNECT_MS, socketTimeout: CONNECT_MS, dnsTimeout: CONNECT_MS };
    return createTransport({ url, ...times, disableFileAccess: true, disableUrlAccess: true });
  }

  return ({ id, subject, text, to }, recipients, signal) =>
    slot(async () => {
      const failed = (why: string, permanent = false): MailAnswer => ({
        accepted: [],
        refused: [],
        error: { why, isPermanent: permanent },
      });
      if (signal.aborted) return failed('the control plane is shutting down');
      const transport = await open();
      const limit = AbortSignal.timeout(totalMs);
      try {
        const domain = from.slice(from.lastIndexOf('@') + 1).replace(/>$/, '');
        const info = await Promise.race([
          transport.sendMail({
            from,
            to: [...to],
            envelope: { from, to: [...recipients] },
            subject,
            text,
            messageId: `<${id}@${domain}>`,
            headers: { 'Auto-Submitted': 'auto-generated' },
          }),
          aborted(AbortSignal.any([signal, limit])),
        ]);
        if (info === null)
          return failed(limit.aborted ? `the SMTP server did not finish within ${totalMs / 1000} s` : 'the control plane is shutting down');
        return { accepted: info.accepted.map(String), refused: refusalsIn(info.rejectedErrors as SmtpError[] | undefined), error: null };
      } catch (error) {
        const problem = error as SmtpError;
        const refused = refusalsIn(problem.rejectedErrors);
        return { accepted: [], refused, error: { why: problem.message, isPermanent: refused.length === 0 && isPermanent(problem) } };
      } finally {
        transport.close();
      }
    });
}

const refusalsIn = (errors: readonly SmtpError[] | undefined): Refusal[] =>
  (errors ?? []).map((error) => ({ recipient: error.recipient ?? '', why: error.message, isPermanent: isPermanent(error) }));

const aborted = (signal: AbortSignal): Promise<null> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve(null);
    else signal.addEventListener('abort', () => resolve(null), { once: true });
  });
