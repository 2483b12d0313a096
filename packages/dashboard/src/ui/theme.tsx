/**
 * The theme of the page. Only files in ui/ import Mantine, so that another library can replace it.
 */
import '@mantine/core/styles.css';
import './global.css';
import {
  createTheme,
  MantineProvider,
  type MantineColorsTuple,
  useMantineColorScheme,
} from '@mantine/core';
import type { ReactNode } from 'react';

/** Shades 7 on white and 4 on dark have a contrast of at least 4.5 (WCAG 2.2, 1.4.3). */
const harbor: MantineColorsTuple = [
  '#e3fafc',
  '#c5f6fa',
  '#99e9f2',
  '#66d9e8',
  '#3bc9db',
  '#1098ad',
  '#0c8599',
  '#0b7285',
  '#095c6b',
  '#063f4a',
];

const theme = createTheme({
  primaryColor: 'harbor',
  primaryShade: { light: 7, dark: 7 },
  colors: { harbor },
  autoContrast: true,
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif',
  fontFamilyMonospace: 'ui-monospace, "SF Mono", Menlo, Consolas, monospace',
  defaultRadius: 'md',
  focusRing: 'always',
  cursorType: 'pointer',
  respectReducedMotion: true,
});

export function Look({ children }: { children: ReactNode }) {
  return (
    <MantineProvider theme={theme} defaultColorScheme="auto">
      {children}
    </MantineProvider>
  );
}

export type Scheme = 'light' | 'dark' | 'auto';
/** Returns the chosen color scheme; `auto` follows the system. */
export function useScheme(): { scheme: Scheme; setScheme: (scheme: Scheme) => void } {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return { scheme: colorScheme, setScheme: setColorScheme };
}
