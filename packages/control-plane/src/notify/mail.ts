/**
 * Sends e-mails through the SMTP server of the operator. One message goes to all recipients that
 * still need it.
 *
 * TLS: smtps:// uses TLS from the start. smtp:// upgrades to TLS (STARTTLS) if the server offers
 * it. STARTTLS is required if SMTP_URL has a user name or a password for a server on another
 * machine: otherwise an attacker on the network could hide the offer and read the password.
 * Certificates are always checked.
 */
import { BlockList, isIP } from 'node:net';
import { createLimit } from '@berth/kit/limit';
import type { Transporter } from 'nodemailer';
import type SMTPTransport from 'nodemailer/lib/smtp-transport/index.js';

export type Mail = { id: string; subject: string; text: string; to: readonly string[] };
export type Refusal = { recipient: string; why: string; isPermanent: boolean };
/** `error`: set if no recipient got the message. */
export type MailAnswer = {
  accepted: string[];
  refused: Refusal[];
  error: { why: string; isPermanent: boolean } | null;
};
export type SendMail = (
  mail: Mail,
  recipients: readonly string[],
  signal: AbortSignal,
) => Promise<MailAnswer>;

const CONNECT_MS = 10_000;
const TOTAL_MS = 30_000;
/** Maximum number of concurrent connections to the server. */
const AT_ONCE = 5;

type SmtpError = Error & {
  responseCode?: number;
  recipient?: string;
  rejectedErrors?: SmtpError[];
  code?: string;
  originalCode?: string;
  command?: string;
};
const isPermanent = ({ responseCode = 0 }: SmtpError): boolean =>
  responseCode >= 500 && responseCode < 600;

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

/** Parameters of SMTP_URL that control STARTTLS. */
const STARTTLS_PARAMETERS = ['requireTLS', 'ignoreTLS', 'opportunisticTLS'] as const;

/**
 * Returns the problem of the parameters that control STARTTLS, or null. The text never contains the
 * password.
 */
export function starttlsProblem(smtpUrl: string): string | null {
  const url = new URL(smtpUrl);
  for (const name of STARTTLS_PARAMETERS) {
    const values = url.searchParams.getAll(name);
    if (values.length > 1 || values.some((value) => value !== 'true' && value !== 'false'))
      return `${name} must be true or false, and given once`;
    if (
      values[0] === 'true' &&
      name !== 'requireTLS' &&
      url.protocol === 'smtp:' &&
      requiresTls(smtpUrl)
    )
      return (
        `${name}=true contradicts STARTTLS, which is required here; requireTLS=false allows ` +
        'clear text'
      );
  }
  return null;
}

/**
 * Returns whether Berth refuses a connection without TLS. `requireTLS` in SMTP_URL decides; without
 * it, TLS is required if a user name or a password would cross a network.
 */
export function requiresTls(smtpUrl: string): boolean {
  const url = new URL(smtpUrl);
  const told = url.searchParams.get('requireTLS');
  if (told === 'true' || told === 'false') return told === 'true';
  const host = url.hostname.replace(/^\[|\]$/g, '').toLowerCase();
  const family = isIP(host);
  const isHere =
    family === 0 ? host === 'localhost' : LOOPBACK.check(host, family === 6 ? 'ipv6' : 'ipv4');
  return (url.username !== '' || url.password !== '') && !isHere;
}

/**
 * Returns the human-readable reason. A TLS error is never permanent, whatever the server answered,
 * because an operator can repair TLS.
 */
function problemOf(error: SmtpError, hasToEncrypt: boolean): { why: string; isPermanent: boolean } {
  const { code = '', originalCode = '', command, message } = error;
  if (/CERT|ALTNAME|ISSUER|SIGNATURE/.test(`${originalCode} ${code}`))
    return {
      why: `the certificate of the SMTP server is not valid here: ${message}`,
      isPermanent: false,
    };
  const isAboutTls =
    command === 'STARTTLS' ||
    code === 'ETLS' ||
    (command === 'EHLO' && hasToEncrypt && message.includes('STARTTLS'));
  if (isAboutTls && hasToEncrypt)
    return {
      why:
        'the SMTP server does not encrypt the connection (STARTTLS), so Berth sent nothing: ' +
        message,
      isPermanent: false,
    };
  return { why: message, isPermanent: !isAboutTls && isPermanent(error) };
}

/** Creates the sender of e-mails, which never rejects. `totalMs`: time limit, for tests. */
export function createSendMail({
  url,
  from,
  totalMs = TOTAL_MS,
}: {
  url: string;
  from: string;
  totalMs?: number;
}): SendMail {
  const hasToEncrypt = requiresTls(url);
  const server = new URL(url);
  // In nodemailer, these URL parameters override its options, also in other spellings.
  if (hasToEncrypt) for (const name of STARTTLS_PARAMETERS) server.searchParams.delete(name);
  const limit = createLimit(AT_ONCE);

  async function open(): Promise<Transporter<SMTPTransport.SentMessageInfo>> {
    // Load nodemailer only when needed, because most installations send no e-mail.
    const { createTransport } = await import('nodemailer');
    const times = {
      connectionTimeout: CONNECT_MS,
      greetingTimeout: CONNECT_MS,
      socketTimeout: CONNECT_MS,
      dnsTimeout: CONNECT_MS,
    };
    return createTransport({
      url: server.href,
      requireTLS: hasToEncrypt,
      ...times,
      disableFileAccess: true,
      disableUrlAccess: true,
    });
  }

  return ({ id, subject, text, to }, recipients, signal) =>
    limit(async () => {
      const failed = (why: string, permanent = false): MailAnswer => ({
        accepted: [],
        refused: [],
        error: { why, isPermanent: permanent },
      });
      if (signal.aborted) return failed('the control plane is shutting down');
      const transport = await open();
      const tooLate = AbortSignal.timeout(totalMs);
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
          aborted(AbortSignal.any([signal, tooLate])),
        ]);
        if (info === null)
          return failed(
            tooLate.aborted
              ? `the SMTP server did not finish within ${totalMs / 1000} s`
              : 'the control plane is shutting down',
          );
        return {
          accepted: info.accepted.map(String),
          refused: refusalsIn(info.rejectedErrors as SmtpError[] | undefined),
          error: null,
        };
      } catch (error) {
        const problem = error as SmtpError;
        const refused = refusalsIn(problem.rejectedErrors);
        const { why, isPermanent: isForEver } = problemOf(problem, hasToEncrypt);
        return {
          accepted: [],
          refused,
          error: { why, isPermanent: refused.length === 0 && isForEver },
        };
      } finally {
        transport.close();
      }
    });
}

const refusalsIn = (errors: readonly SmtpError[] | undefined): Refusal[] =>
  (errors ?? []).map((error) => ({
    recipient: error.recipient ?? '',
    why: error.message,
    isPermanent: isPermanent(error),
  }));

const aborted = (signal: AbortSignal): Promise<null> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve(null);
    else signal.addEventListener('abort', () => resolve(null), { once: true });
  });
