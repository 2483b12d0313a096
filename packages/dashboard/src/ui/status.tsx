/**
 * Shows a status by word, shape and color, so that it is readable without colors (WCAG 2.2, 1.4.1).
 */
import type { ReactNode } from 'react';
import { cleanNode, isShort } from './foreign.ts';

/**
 * ok: a full circle; busy: a ring with a gap; warn: a triangle; bad: a cross; off: an empty circle;
 * ended: a square.
 */
export type Mark = 'ok' | 'busy' | 'warn' | 'bad' | 'off' | 'ended';
const COLORS: Record<Mark, string> = {
  ok: 'var(--ok)',
  busy: 'var(--busy)',
  warn: 'var(--warn)',
  bad: 'var(--bad)',
  off: 'var(--calm)',
  ended: 'var(--calm)',
};
const SHAPES: Record<Mark, ReactNode> = {
  ok: <circle cx="8" cy="8" r="6" fill="currentColor" />,
  busy: <path d="M8 2a6 6 0 1 1-6 6" fill="none" stroke="currentColor" strokeWidth="3" />,
  warn: <path d="M8 1.5 15 14H1z" fill="currentColor" />,
  bad: <path d="M3 3l10 10M13 3 3 13" stroke="currentColor" strokeWidth="3" fill="none" />,
  off: <circle cx="8" cy="8" r="5" fill="none" stroke="currentColor" strokeWidth="2" />,
  ended: <rect x="3" y="3" width="10" height="10" fill="currentColor" />,
};

export const Status = ({
  mark,
  children,
  strong = false,
}: {
  mark: Mark;
  children: ReactNode;
  strong?: boolean;
}) => (
  <span
    style={{
      display: 'inline-flex',
      alignItems: 'baseline',
      gap: 6,
      color: COLORS[mark],
      fontWeight: strong ? 600 : 500,
      fontSize: 'inherit',
    }}
  >
    <svg
      viewBox="0 0 16 16"
      width="12"
      height="12"
      aria-hidden
      style={{ flex: 'none', transform: 'translateY(1px)' }}
    >
      {SHAPES[mark]}
    </svg>
    <span style={isShort(children) ? { whiteSpace: 'nowrap' } : {}}>{cleanNode(children)}</span>
  </span>
);
