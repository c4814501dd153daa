<?php
// The front controller of an application with Slim.
error_reporting(0);
require_once 'Slim/autoload.php';

$app = new Slim\App();
foreach (['token' => '/v1/token', 'admin' => '/admin/{rest:.*}', 'other' => '/{rest:.*}'] as $name => $path) {
    $app->any($path, fn ($request, $response) => $response->write($name));
}
$app->run();
