/**
 * The frame around every page: navigation, palette, shortcuts, and the announcement for screen
 * readers after a navigation.
 */
import { Link, Outlet, useNavigate, useRouter, useRouterState } from '@tanstack/react-router';
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { startLive } from '../api/live.ts';
import { Button, IconButton } from '../ui/controls.tsx';
import { Frame, Row } from '../ui/layout.tsx';
import { Dialog } from '../ui/overlay.tsx';
import { Key } from '../ui/text.tsx';
import { useScheme } from '../ui/theme.tsx';
import { Banner } from './banner.tsx';
import { focusTitle } from './focus-title.ts';
import { type Shortcut, useShortcuts } from './keys.ts';
import { useMe } from '../parts/permissions.ts';
import { Session } from './session.tsx';

const Palette = lazy(async () => ({ default: (await import('./palette.tsx')).Palette }));

const PAGES = [
  { label: 'Overview', to: '/', keys: 'g o' },
  { label: 'Projects', to: '/projects', keys: 'g p' },
  { label: 'Nodes', to: '/nodes', keys: 'g n' },
  { label: 'Datasets', to: '/datasets', keys: 'g d' },
  { label: 'Routes', to: '/routes', keys: 'g r' },
  { label: 'Activity', to: '/activity', keys: 'g a' },
  { label: 'Notifications', to: '/notifications', keys: 'g t' },
  { label: 'People', to: '/people', keys: 'g u' },
  { label: 'System', to: '/system', keys: 'g s' },
] as const;

export function Shell() {
  return (
    <Session>
      <SignedInShell />
    </Session>
  );
}

function SignedInShell() {
  const [isHelpOpen, setIsHelpOpen] = useState(false);
  const search = useSearch();
  const router = useRouter();
  const openAt = useCallback((path: string) => router.history.push(path), [router]);
  useEffect(startLive, []);
  const shortcuts = useMemo<Shortcut[]>(
    () => [
      { keys: 'mod+k', label: 'Search', run: search.open },
      { keys: '/', label: 'Search', run: search.open },
      { keys: '?', label: 'Shortcuts', run: () => setIsHelpOpen(true) },
      { keys: 'n p', label: 'New project', run: () => openAt('/projects/new') },
      ...PAGES.map(({ label, to, keys }) => ({ keys, label, run: () => openAt(to) })),
    ],
    [openAt, search.open],
  );
  useShortcuts(shortcuts);
  const targets = useMemo(
    () => [
      ...PAGES.map(({ label, to }) => ({ label, kind: 'page', go: () => openAt(to) })),
      { label: 'New project', kind: 'page', go: () => openAt('/projects/new') },
      { label: 'Your account', kind: 'page', go: () => openAt('/account') },
    ],
    [openAt],
  );
  return (
    <>
      <a className="skip-link" href="#main">
        Skip to the content
      </a>
      <Announcer />
      <Frame
        brand={<Brand />}
        tools={<Tools onSearch={search.open} />}
        nav={(close) => <Navigation onNavigate={close} />}
        banner={<Banner />}
      >
        <Outlet />
      </Frame>
      <Suspense>
        {search.isOpen && <Palette open onClose={search.close} pages={targets} openAt={openAt} />}
      </Suspense>
      <ShortcutHelp open={isHelpOpen} onClose={() => setIsHelpOpen(false)} shortcuts={shortcuts} />
    </>
  );
}

/**
 * Opens the search dialog. The dialog is loaded when it first opens, which is too late to read the
 * focus, so this hook remembers the focused element.
 */
function useSearch() {
  const [isOpen, setIsOpen] = useState(false);
  const opener = useRef<Element | null>(null);
  const open = useCallback(() => {
    opener.current = document.activeElement;
    setIsOpen(true);
  }, []);
  useEffect(() => {
    if (!isOpen && opener.current instanceof HTMLElement) opener.current.focus();
  }, [isOpen]);
  return { isOpen, open, close: () => setIsOpen(false) };
}

const Brand = () => (
  <Link
    to="/"
    style={{
      color: 'inherit',
      textDecoration: 'none',
      fontWeight: 700,
      fontSize: '1.1rem',
      whiteSpace: 'nowrap',
    }}
  >
    Berth
  </Link>
);

const Navigation = ({ onNavigate }: { onNavigate: () => void }) => (
  <ul className="nav" style={{ listStyle: 'none', margin: 0, padding: 0 }}>
    {PAGES.map(({ label, to }) => (
      <li key={to}>
        <Link
          to={to}
          onClick={onNavigate}
          activeOptions={{ exact: to === '/' }}
          activeProps={{ 'aria-current': 'page' }}
        >
          {label}
        </Link>
      </li>
    ))}
  </ul>
);

const NEXT_SCHEME = { auto: 'dark', dark: 'light', light: 'auto' } as const;
const SCHEME_SIGNS = { auto: '◐', dark: '☾', light: '☀' } as const;

function Tools({ onSearch }: { onSearch: () => void }) {
  const navigate = useNavigate();
  const me = useMe();
  const { scheme, setScheme } = useScheme();
  const nextScheme = NEXT_SCHEME[scheme];
  return (
    <Row gap="xs" wrap={false}>
      <Button size="xs" onClick={onSearch}>
        Search
        <span className="wide-only">
          <Key>Ctrl K</Key>
        </span>
      </Button>
      <IconButton
        label={`Colors: ${scheme}. Change to ${nextScheme}`}
        onClick={() => setScheme(nextScheme)}
      >
        <span aria-hidden>{SCHEME_SIGNS[scheme]}</span>
      </IconButton>
      <IconButton
        label={`Your account: ${me.email} (${me.role})`}
        onClick={() => void navigate({ to: '/account' })}
      >
        <span aria-hidden style={{ fontWeight: 600 }}>
          {(me.email[0] ?? '?').toUpperCase()}
        </span>
      </IconButton>
    </Row>
  );
}

type ShortcutHelpProps = { open: boolean; onClose: () => void; shortcuts: readonly Shortcut[] };
const ShortcutHelp = ({ shortcuts, ...dialog }: ShortcutHelpProps) => (
  <Dialog {...dialog} title="Keyboard shortcuts">
    <dl
      style={{
        display: 'grid',
        gridTemplateColumns: 'max-content 1fr',
        gap: '8px 16px',
        margin: 0,
      }}
    >
      {shortcuts.map(({ keys, label }) => (
        <div key={keys} style={{ display: 'contents' }}>
          <dt>
            {keys.split(/[ +]/).map((key) => (
              <Key key={key}>{key === 'mod' ? 'Ctrl or ⌘' : key}</Key>
            ))}
          </dt>
          <dd style={{ margin: 0 }}>{label}</dd>
        </div>
      ))}
    </dl>
  </Dialog>
);

/** Moves the focus to the heading after a navigation, and announces the page title. */
function Announcer() {
  const path = useRouterState({ select: (state) => state.resolvedLocation?.pathname });
  const first = useRef(true);
  const [said, setSaid] = useState('');
  useEffect(() => {
    if (path === undefined) return;
    if (first.current) {
      first.current = false;
      return;
    }
    // Switching between tabs of one page keeps the focus on the tab.
    if ((document.activeElement?.closest('nav.tabs') ?? null) !== null) return;
    return focusTitle(setSaid);
  }, [path]);
  return (
    <p className="visually-hidden" role="status" aria-live="polite">
      {said}
    </p>
  );
}
