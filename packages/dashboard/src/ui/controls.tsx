/** Buttons, menus and tabs. */
import {
  ActionIcon,
  Button as MantineButton,
  CopyButton,
  Menu as MantineMenu,
  SegmentedControl,
  Tooltip,
} from '@mantine/core';
import { type MouseEvent, type ReactNode, useId } from 'react';

type ButtonProps = {
  children: ReactNode;
  onClick?: () => void;
  /**
   * The reason why the action is not possible now; null if it is possible. The button stays in the
   * tab order and shows the reason.
   */
  reason?: string | null | undefined;
  look?: 'main' | 'normal' | 'quiet' | 'danger';
  size?: 'xs' | 'sm' | 'md';
  busy?: boolean;
  type?: 'button' | 'submit';
  icon?: ReactNode;
  label?: string;
  expanded?: boolean;
};
const VARIANTS = { main: 'filled', normal: 'default', quiet: 'subtle', danger: 'outline' } as const;

export function Button({
  children,
  onClick,
  reason,
  look = 'normal',
  size = 'sm',
  busy = false,
  type = 'button',
  icon,
  label,
  expanded,
}: ButtonProps) {
  const id = useId();
  const impossible = reason !== null && reason !== undefined;
  const click = (event: MouseEvent): void => {
    if (!impossible && !busy) onClick?.();
    else event.preventDefault();
  };
  const button = (
    <MantineButton
      type={type}
      variant={VARIANTS[look]}
      {...(look === 'danger' ? { color: 'var(--bad)' } : {})}
      size={size}
      onClick={click}
      leftSection={icon}
      aria-disabled={impossible || busy || undefined}
      aria-busy={busy || undefined}
      aria-expanded={expanded}
      aria-label={label}
      {...(impossible ? { 'aria-describedby': id } : {})}
    >
      {children}
    </MantineButton>
  );
  if (reason === undefined) return button;
  // Render the same tree with and without a reason: a moved button loses the focus.
  return (
    <>
      <Tooltip
        label={sentence(reason ?? '')}
        disabled={!impossible}
        events={{ hover: true, focus: true, touch: true }}
        multiline
        maw={320}
        withinPortal
      >
        {button}
      </Tooltip>
      {impossible && (
        <span id={id} className="visually-hidden">
          {sentence(reason)}
        </span>
      )}
    </>
  );
}

type LinkButtonProps = {
  href: string;
  children: ReactNode;
  look?: 'main' | 'normal';
  newTab?: boolean;
};
/** A link to another program, for example a login, as the main action of a page. */
export const LinkButton = ({ href, children, look = 'main', newTab = false }: LinkButtonProps) => (
  <MantineButton
    component="a"
    href={href}
    variant={VARIANTS[look]}
    size="sm"
    // Wrap a long text to a second line, because a truncated text is not readable.
    styles={{
      root: { height: 'auto', minHeight: 36, paddingBlock: 6 },
      label: { whiteSpace: 'normal', lineHeight: 1.3 },
    }}
    {...(newTab ? { target: '_blank', rel: 'noreferrer' } : {})}
  >
    {children}
    {newTab && <span className="visually-hidden"> (opens a new tab)</span>}
  </MantineButton>
);

const sentence = (text: string): string => `Not possible: ${text}`;

type IconButtonProps = {
  label: string;
  children: ReactNode;
  onClick: () => void;
  pressed?: boolean;
};
export const IconButton = ({ label, children, onClick, pressed }: IconButtonProps) => (
  <Tooltip label={label} openDelay={400}>
    <ActionIcon
      variant="subtle"
      color="gray"
      size="lg"
      aria-label={label}
      aria-pressed={pressed}
      onClick={onClick}
    >
      {children}
    </ActionIcon>
  </Tooltip>
);

export type MenuItem = {
  label: string;
  onClick: () => void;
  reason?: string | null;
  danger?: boolean;
};
export function Menu({
  label,
  items,
  children,
}: {
  label: string;
  items: readonly MenuItem[];
  children?: ReactNode;
}) {
  return (
    <MantineMenu position="bottom-end" withinPortal>
      <MantineMenu.Target>
        {children === undefined ? (
          <ActionIcon variant="default" size="lg" aria-label={label}>
            <span aria-hidden>⋯</span>
          </ActionIcon>
        ) : (
          <MantineButton variant="default" size="sm" aria-label={label}>
            {children}
          </MantineButton>
        )}
      </MantineMenu.Target>
      <MantineMenu.Dropdown>
        {items.map(({ label, onClick, reason, danger }) => (
          <MantineMenu.Item
            key={label}
            closeMenuOnClick={reason === null || reason === undefined}
            onClick={() => (reason === null || reason === undefined ? onClick() : undefined)}
            aria-disabled={reason === null || reason === undefined ? undefined : true}
            {...(danger ? { c: 'var(--bad)' } : {})}
          >
            {label}
            {reason !== null && reason !== undefined && (
              <span style={{ display: 'block', fontSize: '0.75rem' }}>{sentence(reason)}</span>
            )}
          </MantineMenu.Item>
        ))}
      </MantineMenu.Dropdown>
    </MantineMenu>
  );
}

/** A button that copies `text` and announces the copy to screen readers. */
export function Copy({
  text,
  label = 'Copy',
  children,
}: {
  text: string;
  label?: string;
  children?: ReactNode;
}) {
  return (
    <CopyButton value={text} timeout={2_000}>
      {({ copied, copy }) => (
        <MantineButton
          variant="subtle"
          size="compact-xs"
          onClick={copy}
          aria-label={copied ? 'Copied' : label}
        >
          <span aria-live="polite">{copied ? 'Copied' : (children ?? 'Copy')}</span>
        </MantineButton>
      )}
    </CopyButton>
  );
}

type ChoiceProps<T extends string> = {
  label: string;
  value: T;
  options: readonly { value: T; label: string }[];
  onChange: (value: T) => void;
};
export const Choice = <T extends string>({ label, value, options, onChange }: ChoiceProps<T>) => (
  <SegmentedControl
    aria-label={label}
    size="xs"
    value={value}
    data={[...options]}
    onChange={(next) => onChange(next as T)}
  />
);
