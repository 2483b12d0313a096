/** Components for feedback: notes, errors, progress, empty lists. */
import { Alert, Loader, Progress as MantineProgress, Skeleton } from '@mantine/core';
import type { ReactNode } from 'react';
import { cleanNode } from './foreign.ts';

export type Tone = 'info' | 'ok' | 'warn' | 'bad';
const COLORS: Record<Tone, string> = {
  info: 'var(--busy)',
  ok: 'var(--ok)',
  warn: 'var(--warn)',
  bad: 'var(--bad)',
};
/** An `alert` interrupts a screen reader; a `status` waits until the current sentence ends. */
const LIVE_ROLES = { info: 'status', ok: 'status', warn: 'status', bad: 'alert' } as const;
const MARKS: Record<Tone, string> = { info: 'i', ok: '✓', warn: '▲', bad: '✕' };

type NoteProps = {
  tone?: Tone;
  title?: ReactNode;
  children?: ReactNode;
  live?: boolean;
  onClose?: () => void;
};
/** `live`: screen readers announce the note when it appears. */
export const Note = ({ tone = 'info', title, children, live = false, onClose }: NoteProps) => (
  <Alert
    variant="light"
    title={title}
    icon={<span aria-hidden>{MARKS[tone]}</span>}
    role={live ? LIVE_ROLES[tone] : 'note'}
    {...(onClose === undefined
      ? {}
      : { withCloseButton: true, onClose, closeButtonLabel: 'Close' })}
    styles={{
      root: {
        background: `color-mix(in srgb, ${COLORS[tone]} 10%, var(--raised))`,
        borderColor: `color-mix(in srgb, ${COLORS[tone]} 35%, var(--raised))`,
      },
      icon: { color: COLORS[tone] },
      title: { color: 'var(--mantine-color-text)' },
      message: { color: 'var(--mantine-color-text)' },
    }}
  >
    {cleanNode(children)}
  </Alert>
);

/** A text for screen readers only, which they announce when it appears. */
export const Spoken = ({ children }: { children: ReactNode }) => (
  <span className="visually-hidden" role="alert">
    {cleanNode(children)}
  </span>
);

export const Waiting = ({ what }: { what: string }) => (
  <div
    role="status"
    style={{
      padding: 24,
      display: 'flex',
      gap: 12,
      alignItems: 'center',
      justifyContent: 'center',
    }}
  >
    <Loader size="sm" aria-hidden />
    <span>Loading {what} …</span>
  </div>
);

/** Grey lines as a placeholder for text that is loading, so that the page does not jump. */
export const SkeletonLines = ({ lines = 3 }: { lines?: number }) => (
  <div aria-hidden data-skeleton style={{ display: 'grid', gap: 10, padding: 16 }}>
    {Array.from({ length: lines }, (_, i) => (
      <Skeleton key={i} height={14} width={`${90 - ((i * 17) % 40)}%`} />
    ))}
  </div>
);

export const Progress = ({ value, label }: { value: number; label: string }) => (
  <MantineProgress.Root size="lg">
    <MantineProgress.Section value={Math.max(0, Math.min(100, value))} aria-label={label} />
  </MantineProgress.Root>
);

type Share = { label: string; value: number; color: string };
/** A bar made of parts, with a text legend. */
export function Bar({
  parts,
  total,
  label,
  format,
}: {
  parts: readonly Share[];
  total: number;
  label: string;
  format: (value: number) => string;
}) {
  const visibleParts = parts.filter(({ value }) => value > 0);
  const textOf = (part: Share): string => `${part.label} ${format(part.value)}`;
  return (
    <div>
      <div role="img" aria-label={`${label}: ${visibleParts.map(textOf).join(', ')}`}>
        <MantineProgress.Root size={18} radius="sm">
          {visibleParts.map((part) => (
            <MantineProgress.Section
              key={part.label}
              value={total === 0 ? 0 : (part.value / total) * 100}
              color={part.color}
              withAria={false}
              title={textOf(part)}
            />
          ))}
        </MantineProgress.Root>
      </div>
      <ul
        style={{
          display: 'flex',
          flexWrap: 'wrap',
          gap: '4px 16px',
          margin: '8px 0 0',
          padding: 0,
          listStyle: 'none',
          fontSize: '0.8rem',
        }}
      >
        {visibleParts.map((part) => (
          <li key={part.label}>
            <span
              aria-hidden
              style={{
                display: 'inline-block',
                width: 10,
                height: 10,
                background: part.color,
                borderRadius: 2,
                marginRight: 6,
              }}
            />
            {textOf(part)}
          </li>
        ))}
      </ul>
    </div>
  );
}
