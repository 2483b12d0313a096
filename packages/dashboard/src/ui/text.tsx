/** Text and links. */
import { Code as MantineCode, Kbd, Title as MantineTitle } from '@mantine/core';
import { createLink } from '@tanstack/react-router';
import { type ComponentProps, Fragment, type ReactNode } from 'react';
import { cleanNode, isShort } from './foreign.ts';

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
  /** Shows at most six lines, for an error in a list. */
  clamp?: boolean;
  /** Keeps line breaks and indentation, for program output. */
  lines?: boolean;
  id?: string;
};
/**
 * Renders a plain element, like the links: tables have hundreds of texts, and components of the UI
 * library take several times as long.
 */
export const Text = ({
  children,
  tone = 'normal',
  size = 'sm',
  strong = false,
  mono = false,
  inline = false,
  clamp = false,
  lines = false,
  id,
}: TextProps) => {
  const Tag = inline ? 'span' : 'p';
  const color = COLORS[tone];
  return (
    <Tag
      className={
        `text text-${size}${strong ? ' text-strong' : ''}${mono ? ' text-mono' : ''}` +
        `${clamp ? ' text-clamp' : ''}${lines ? ' text-lines' : ''}`
      }
      {...(color === undefined ? {} : { style: { color } })}
      {...(id === undefined ? {} : { id })}
    >
      {cleanNode(children)}
    </Tag>
  );
};

/**
 * The only h1 of a page. It gets the focus after a navigation, so that screen readers announce it.
 */
export const Title = ({ children }: { children: ReactNode }) => (
  <MantineTitle order={1} size="h2" tabIndex={-1} data-page-title>
    {children}
  </MantineTitle>
);

export const Code = ({ children }: { children: ReactNode }) => (
  <MantineCode>{cleanNode(children)}</MantineCode>
);
export const Key = ({ children }: { children: ReactNode }) => <Kbd size="sm">{children}</Kbd>;

/** Without `size`, a link has the size of the surrounding text. */
type AnchorProps = ComponentProps<'a'> & { size?: 'xs' | 'sm' };
const Anchor = ({ size, className = '', children, ...props }: AnchorProps) => (
  <a
    {...props}
    className={
      'mantine-focus-always text ' +
      `link${size === undefined ? '' : ` text-${size}`}${isShort(children) ? ' link-short' : ''} ` +
      className
    }
  >
    {children}
  </a>
);

/** A link to a page of the dashboard. */
export const PageLink = createLink(Anchor);

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

/** A link to a project's site. Its text is the host, which wraps only before a dot. */
export const SiteLink = ({ url }: { url: string }) => (
  <OutLink href={url}>
    {url
      .replace(/^https?:\/\//, '')
      .split(/(?=\.)/)
      .map((part, index) => (
        <Fragment key={index}>
          {index > 0 && <wbr />}
          {part}
        </Fragment>
      ))}
  </OutLink>
);
