<?php
// Paths as frameworks for PHP take them out of a request, for the server of php -S.
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if (!is_string($path)) {
    http_response_code(400);
    exit;
}
$path = rawurldecode($path);
echo $path === '/v1/token' ? 'token' : ($path === '/script.php' ? 'script' : (str_starts_with($path, '/admin/') ? 'admin' : 'other'));
