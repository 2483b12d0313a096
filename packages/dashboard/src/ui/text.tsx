/** Text and links. */
import { Anchor, Code as MantineCode, Kbd, Text as MantineText, Title as MantineTitle } from '@mantine/core';
import { createLink } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { cleanNode } from './foreign.ts';

type Tone = 'normal' | 'quiet' | 'ok' | 'bad' | 'warn' | 'busy' | 'calm';
const COLORS: Record<Tone, string | undefined> = {
  normal: undefined,
  quiet: 'var(--quiet)',
  ok: 'var(--ok)',
  bad: 'var(--bad)',
  warn: 'var(--warn)',
  busy: 'var(--busy)',
  calm: 'var(--calm)',
};
type TextProps = {
  children: ReactNode;
  tone?: Tone;
  size?: 'xs' | 'sm' | 'md' | 'lg';
  strong?: boolean;
  mono?: boolean;
  inline?: boolean;
  id?: string;
};
export const Text = ({ children, tone = 'normal', size = 'sm', strong = false, mono = false, inline = false, id }: TextProps) => (
  <MantineText
    component={inline ? 'span' : 'p'}
    m={0}
    size={size}
    {...(COLORS[tone] === undefined ? {} : { c: COLORS[tone] })}
    {...(strong ? { fw: 600 } : {})}
    {...(mono ? { ff: 'monospace' } : {})}
    {...(id === undefined ? {} : { id })}
  >
    {cleanNode(children)}
  </MantineText>
);

/** The only h1 of a page. It gets the focus after a navigation, so that screen readers say it. */
export const Title = ({ children }: { children: ReactNode }) => (
  <MantineTitle order={1} size="h2" tabIndex={-1} data-page-title>
    {children}
  </MantineTitle>
);

export const Code = ({ children }: { children: ReactNode }) => <MantineCode>{cleanNode(children)}</MantineCode>;
export const Key = ({ children }: { children: ReactNode }) => <Kbd size="sm">{children}</Kbd>;

/** A link to a page of the dashboard. */
export const PageLink = createLink(Anchor<'a'>);

/** A link that leaves the dashboard in the same tab. */
export const OutAnchor = ({ href, children }: { href: string; children: ReactNode }) => (
  <Anchor href={href} size="sm">
    {children}
  </Anchor>
);

export const OutLink = ({ href, children }: { href: string; children: ReactNode }) => (
  <Anchor href={href} target="_blank" rel="noreferrer" size="sm">
    {children}
    <span className="visually-hidden"> (opens a new tab)</span>
  </Anchor>
);
