/**
 * Renders a message for each kind of target. Escapes all texts of Berth and of projects for the
 * target. Pure.
 */
import { createHmac } from 'node:crypto';
import type { Message, NoticeItem } from '../domain/notifications/notifications.ts';

const MAX_LINE = 300;
const DISCORD_LIMIT = 2_000;

type Style = {
  escape(text: string): string;
  bold(text: string): string;
  link(url: string): string;
};
const PLAIN: Style = { escape: (text) => text, bold: (text) => text, link: (url) => url };
const SLACK: Style = {
  // Slack interprets `<!channel>`, links and mentions in angle brackets.
  escape: (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;'),
  bold: (text) => `*${text}*`,
  link: (url) => `<${url}>`,
};
const DISCORD: Style = {
  escape: (text) => text.replaceAll(/[\\`*_~|<>#@[\]()]/g, String.raw`\$&`),
  bold: (text) => `**${text}**`,
  link: (url) => `<${url}>`,
};

const clip = (text: string, most = MAX_LINE): string =>
  text.length <= most ? text : `${text.slice(0, most - 1).toWellFormed()}…`;
const oneLine = (text: string): string => text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, ' ').trim();
const urlOf = (publicUrl: string, path: string): string => `${publicUrl.replace(/\/$/, '')}${path}`;
const day = (ms: number): string =>
  `${new Date(ms).toISOString().slice(0, 16).replace('T', ' ')} UTC`;

function linesOf(
  { seen, is_over, opened_at, at }: NoticeItem,
  publicUrl: string,
  { escape, link }: Style,
): string[] {
  const time = is_over
    ? `Over since ${day(at)}; it began ${day(opened_at)}.`
    : `Since ${day(opened_at)}.`;
  return [
    ...(seen.detail === null ? [] : [escape(oneLine(seen.detail))]),
    ...(seen.advice === null ? [] : [escape(seen.advice)]),
    time,
    ...(seen.path === null ? [] : [link(urlOf(publicUrl, seen.path))]),
  ];
}

function textOf(message: Message, publicUrl: string, style: Style): string {
  const { escape, bold, link } = style;
  const title = bold(escape(clip(oneLine(message.title))));
  if (message.type === 'test')
    return [
      title,
      'Berth can deliver to this target. Problems will arrive here.',
      link(urlOf(publicUrl, '/')),
    ].join('\n');
  const [only] = message.items;
  if (message.total === 1 && only !== undefined) {
    const heading = bold(escape(clip(`${only.is_over ? 'Over: ' : ''}${oneLine(message.title)}`)));
    return [heading, ...linesOf(only, publicUrl, style)].join('\n');
  }
  const items = message.items.map(({ is_over, seen }) => {
    const text = `${is_over ? 'Over: ' : ''}${oneLine(seen.title)}`;
    return `- ${escape(clip(text, 120))}`;
  });
  const more = message.total - message.items.length;
  return [
    title,
    ...items,
    ...(more > 0 ? [`- and ${more} more`] : []),
    link(urlOf(publicUrl, '/')),
  ].join('\n');
}

export const slackBody = (message: Message, publicUrl: string): string =>
  JSON.stringify({ text: textOf(message, publicUrl, SLACK), unfurl_links: false });

export const discordBody = (message: Message, publicUrl: string): string =>
  JSON.stringify({
    content: clip(textOf(message, publicUrl, DISCORD), DISCORD_LIMIT),
    allowed_mentions: { parse: [] },
    flags: 4,
  });

/**
 * Returns the body of a webhook. It is the same for every attempt; a receiver recognizes a repeated
 * delivery by its id.
 */
export const webhookBody = (message: Message, publicUrl: string): string =>
  JSON.stringify({
    type: message.type,
    timestamp: new Date(message.at).toISOString(),
    data: {
      title: message.title,
      total: message.total,
      problems: message.items.map(({ kind, subject, is_over, seen, opened_at, at }) => ({
        kind,
        subject,
        state: is_over ? 'over' : 'open',
        title: seen.title,
        detail: seen.detail,
        advice: seen.advice,
        url: seen.path === null ? null : urlOf(publicUrl, seen.path),
        project_ids: seen.project_ids,
        opened_at: new Date(opened_at).toISOString(),
        at: new Date(at).toISOString(),
      })),
    },
  });

export const mailOf = (message: Message, publicUrl: string): { subject: string; text: string } => {
  const over = message.type === 'recovered' ? 'Over: ' : '';
  return {
    subject: `[Berth] ${over}${clip(oneLine(message.title), 150)}`,
    text: `${textOf(message, publicUrl, PLAIN)}\n`,
  };
};

/**
 * Returns the signature by the Standard Webhooks specification. `secret`: `whsec_` followed by
 * base64.
 */
export function signature(secret: string, id: string, timestamp: number, body: string): string {
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
}
