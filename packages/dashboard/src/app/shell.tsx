/**
 * The frame around every page: navigation, palette, shortcuts, and what screen readers hear after a
 * navigation.
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
      <Inside />
    </Session>
  );
}

function Inside() {
  const [search, setSearch] = useState(false);
  const [help, setHelp] = useState(false);
  const navigate = useNavigate();
  const router = useRouter();
  const me = useMe();
  const { scheme, setScheme } = useScheme();
  useEffect(startLive, []);
  /**
   * The dialog is loaded when it opens for the first time, too late to know where the focus was.
   */
  const opener = useRef<Element | null>(null);
  const openSearch = useCallback(() => {
    opener.current = document.activeElement;
    setSearch(true);
  }, []);
  useEffect(() => {
    if (!search && opener.current instanceof HTMLElement) opener.current.focus();
  }, [search]);

  const openAt = useCallback((path: string) => router.history.push(path), [router]);
  const shortcuts = useMemo<Shortcut[]>(
    () => [
      { keys: 'mod+k', label: 'Search', run: openSearch },
      { keys: '/', label: 'Search', run: openSearch },
      { keys: '?', label: 'Shortcuts', run: () => setHelp(true) },
      { keys: 'n p', label: 'New project', run: () => openAt('/projects/new') },
      ...PAGES.map(({ label, to, keys }) => ({ keys, label, run: () => openAt(to) })),
    ],
    [openAt, openSearch],
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
  const nextScheme = scheme === 'auto' ? 'dark' : scheme === 'dark' ? 'light' : 'auto';
  return (
    <>
      <a className="skip-link" href="#main">
        Skip to the content
      </a>
      <Announcer />
      <Frame
        brand={
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
        }
        tools={
          <Row gap="xs" wrap={false}>
            <Button size="xs" onClick={openSearch}>
              Search
              <span className="wide-only">
                <Key>Ctrl K</Key>
              </span>
            </Button>
            <IconButton
              label={`Colors: ${scheme}. Change to ${nextScheme}`}
              onClick={() => setScheme(nextScheme)}
            >
              <span aria-hidden>{scheme === 'dark' ? '☾' : scheme === 'light' ? '☀' : '◐'}</span>
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
        }
        nav={(close) => (
          <ul className="nav" style={{ listStyle: 'none', margin: 0, padding: 0 }}>
            {PAGES.map(({ label, to }) => (
              <li key={to}>
                <Link
                  to={to}
                  onClick={close}
                  activeOptions={{ exact: to === '/' }}
                  activeProps={{ 'aria-current': 'page' }}
                >
                  {label}
                </Link>
              </li>
            ))}
          </ul>
        )}
        banner={<Banner />}
      >
        <Outlet />
      </Frame>
      <Suspense>
        {search && (
          <Palette open onClose={() => setSearch(false)} pages={targets} openAt={openAt} />
        )}
      </Suspense>
      <Dialog open={help} onClose={() => setHelp(false)} title="Keyboard shortcuts">
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
    </>
  );
}

/**
 * After a navigation the heading gets the focus, and a screen reader says the title of the page.
 */
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
    // A change of the tab of one page keeps the focus on the tab.
    if ((document.activeElement?.closest('nav.tabs') ?? null) !== null) return;
    return focusTitle(setSaid);
  }, [path]);
  return (
    <p className="visually-hidden" role="status" aria-live="polite">
      {said}
    </p>
  );
}
